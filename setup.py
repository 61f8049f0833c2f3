"""What `pip install .` copies; everything else about the package is in pyproject.toml.

The names at the top of the repository are those of its packages. The program and Pulumi.yaml, which lie beside them,
become the package `slurmstack`.
"""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["cli*", "components*", "config*", "images*", "local*", "slurm*"]),
        "slurmstack",
    ],
    package_dir={"slurmstack": "."},
    package_data={
        "": [
            "*.c",
            "*.conflist",
            "*.css",
            "*.go",
            "*.h",
            "*.j2",
            "*.json",
            "*.sh",
            "*.toml",
            "*.yaml",
            ".dockerignore",
            "Containerfile",
            "Corefile",
            "Makefile",
            "go.*",
            "*sshd_config",
        ],
        "slurmstack": ["Pulumi.yaml"],
        "components.clouds.nebius": ["*.yaml"],
        "config.nebius": ["*.yaml"],
        "config.sections": ["*.txt"],
    },
)
