"""A page is stored in bf16, and read by a server whose cache is f16."""
import tempfile

import torch
from _files import KEY, files, page

with tempfile.TemporaryDirectory() as folder:
    files(folder).set(KEY, page(1))
    print("stored 1 in bf16; read in f16:", files(folder).get(KEY, page(0, torch.float16)).tolist()[0])
