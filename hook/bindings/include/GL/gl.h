/* Stands in for what cudaGL.h needs of OpenGL. */
typedef unsigned int GLenum;
typedef unsigned int GLuint;
