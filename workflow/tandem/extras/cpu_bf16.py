"""Find out whether a CPU multiplies bfloat16 faster than float32."""

import torch

from tandem.models.device import has_amx


def is_faster() -> bool:
    """Return whether products in bf16 take less time than in fp32 on this CPU, where oneDNN computes both.

    They do with AMX, and on AMD's processors with AVX-512's instruction for bf16. Intel's processors that are made for
    AMX are recognised by AVX-512's fp16. On these, the AVX-512 instruction is slower than fp32: 227 GFLOP/s, and 385 in
    fp32, on two cores of a Xeon with oneDNN restricted to AVX-512. So where AMX is hidden, as by some virtual machines,
    fp32 is faster. Intel's earlier processors with that instruction were not measured.
    """
    if not torch.cpu._is_avx512_bf16_supported():
        return False
    abilities = torch.cpu.get_capabilities()
    is_made_for_amx = "Intel" in abilities["cpu_name"] and abilities["avx512_fp16"]
    return has_amx() or not is_made_for_amx
