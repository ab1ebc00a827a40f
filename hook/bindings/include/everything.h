/* All headers of the CUDA driver API together, for the names of its functions. cudaVDPAU.h leaves it to the program to
   include what it needs. */
#include <cuda.h>
#include <cudaEGL.h>
#include <cudaGL.h>
typedef unsigned int VdpDevice;
typedef unsigned int VdpOutputSurface;
typedef unsigned int VdpVideoSurface;
typedef void *VdpGetProcAddress;
#include <cudaVDPAU.h>
