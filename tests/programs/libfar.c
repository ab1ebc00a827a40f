// Linked for addresses so high that the loader has to move it down.

int far_away(void)
{
    return 42;
}
