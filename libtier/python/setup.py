"""Builds the wheel of the Python binding: `pip wheel --no-build-isolation --no-deps .` needs
setuptools, wheel and cffi in the environment, and no network (tier_build.py says where it looks).

SPDX-License-Identifier: Apache-2.0
"""
from setuptools import setup

DOORS = ("events", "llama", "lmcache", "sglang", "vllm")

setup(
    name="libtier",
    version="0.1.0",
    description="Python binding of libtier, a tiered memory service for KV context",
    license="Apache-2.0",
    packages=["tier"] + [f"tier.{door}" for door in DOORS],
    package_dir={f"tier.{door}": f"../connect/{door}" for door in DOORS},
    python_requires=">=3.8",
    install_requires=["cffi>=1.15"],
    cffi_modules=["tier_build.py:TIER", "tier_build.py:LLAMA"],
    options={"bdist_wheel": {"py_limited_api": "cp38"}},
)
