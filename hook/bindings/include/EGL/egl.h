/* Stands in for what cudaEGL.h needs of EGL: this, and eglext.h. */
typedef int EGLint;
