// A library for LD_AUDIT that changes nothing.

unsigned la_version(unsigned version)
{
    return version;
}
