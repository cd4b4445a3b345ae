"""One instruction set for every processor, so that golden numbers and bit-equal rows do not depend on it.

Sums differ between instruction sets. Import this before torch.
"""

import os

os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("DNNL_MAX_CPU_ISA", "AVX2")
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")
