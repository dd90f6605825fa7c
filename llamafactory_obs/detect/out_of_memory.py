"""Out of memory, by the words of the exception: torch and the drivers have no common class for it."""

#: of CUDA, ROCm, XPU; of torch's CPU allocator (these two are what accelerate's `should_reduce_batch_size` knows);
#: of Python and the kernel
_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "memoryerror")


def says_out_of_memory(text: str) -> bool:
    """Does an exception's text say that memory ran out?"""
    text = text.lower()
    return any(words in text for words in _WORDS)
