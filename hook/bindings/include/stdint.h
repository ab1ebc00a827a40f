/* Stands in for the C library's stdint.h while hook/bindings reads a header: the declarations come out the same on
   every machine, and libclang, which has no headers of its own, needs none. */
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
