"""Products of pairs by the GPU's kernel, which Triton's interpreter runs on any machine."""

import os
import subprocess
import sys

import pytest

CODE = """
import torch
from tandem.contrib.gpu_search.pair_kernel import sum_products

torch.manual_seed(0)
for dtype in (torch.float16, torch.float32):
    for dimension in (5, 768, 1100):
        queries, passages = torch.randn(7, dimension).to(dtype), torch.randn(9, dimension).to(dtype)
        query, row = torch.randint(7, (40,)), torch.randint(9, (40,))
        wanted = (queries[query].double() * passages[row].double()).sum(1)
        torch.testing.assert_close(sum_products(queries, passages, query, row), wanted, rtol=0, atol=1e-12)
none = torch.zeros(0, dtype=torch.int64)
assert len(sum_products(queries, passages, none, none)) == 0
"""


def test_pairs_have_the_sums_of_float64():
    pytest.importorskip("triton", reason="PyTorch brings Triton along only where it is for CUDA")
    env = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", CODE], env=env, check=True)
