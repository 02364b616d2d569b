"""The version of Husk, which tests/torch/test_version.py compares with CMake's."""

VERSION = "0.1.0"
