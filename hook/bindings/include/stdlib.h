/* Stands in for the C library's stdlib.h while hook/bindings reads a header, which wants nothing but size_t of it. */
typedef __SIZE_TYPE__ size_t;
