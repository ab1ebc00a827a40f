// A library with names of its own that begin like the driver's, as cuDNN and cuBLAS have, one of them the very same.

// The driver does not export it, and only the caller knows it.
int cuPrivateThing(void)
{
    return 4711;
}

// The driver has this one too. Who asks this library for it wants this one.
int cuMemAlloc_v2(void *at, unsigned long bytes)
{
    (void)at;
    (void)bytes;
    return 4712;
}

int nvmlInit_v2(void)
{
    return 4713;
}
