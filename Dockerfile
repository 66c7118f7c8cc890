# Line B of Lockstep, from the lock, without root. `make image` builds it; BASE_IMAGE is any image with glibc 2.39 or newer,
# apt, and a Python from 3.11 to 3.13 in its packages.
#
# It is also what the steps of a package run in on Kubeflow Pipelines. Code of your own is named by import path, so it has
# to be in the image, at the place that PYTHONPATH names; build it from the same state that you compile:
#
#     FROM lockstep
#     COPY my_project /opt/code/my_project
#     ENV PYTHONPATH=/opt/code
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
# Group 0 may do what the user may: OpenShift and its like give a container a user id of their own, in that group.
# Kubeflow Pipelines' launcher runs as the container's user and downloads to /gcs, /minio and /s3. From 2.4 on volumes are
# mounted there; before, it would have to make them in the root folder. The rest of what it makes is below /tmp.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --gid 0 --create-home lockstep \
 && chmod -R g=u /home/lockstep \
 && install -d -m 1777 /gcs /minio /s3
COPY --from=build /opt/lockstep /opt/lockstep
# HOME and USER by hand: a user id that the image does not know has neither, and Python asks for both.
ENV PATH=/opt/lockstep/bin:$PATH HOME=/home/lockstep USER=lockstep PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=1
# By number, so that Kubernetes can see that it is not root.
USER 10001
WORKDIR /home/lockstep
ENTRYPOINT ["lockstep"]
CMD ["--help"]
