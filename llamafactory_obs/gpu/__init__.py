"""GPU memory and load, from torch and from NVML; every value is optional."""
