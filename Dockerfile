# Line B of Lockstep, from the lock, without root. `make image` builds it; BASE_IMAGE is any image with glibc 2.39 or newer,
# apt, and a Python from 3.11 to 3.13 in its packages.
ARG BASE_IMAGE=debian:trixie-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv python3-dev g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements requirements
COPY dist dist
# The environment is copied to where it was made: its scripts hold that path.
RUN python3 requirements/install.py --venv /opt/lockstep --lock runtime --wheel "$(ls dist/*.whl)" \
 && rm -rf /root/.cache .cache

FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home lockstep
COPY --from=build /opt/lockstep /opt/lockstep
ENV PATH=/opt/lockstep/bin:$PATH PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=1
# By number, so that Kubernetes can see that it is not root.
USER 10001
WORKDIR /home/lockstep
ENTRYPOINT ["lockstep"]
CMD ["--help"]
