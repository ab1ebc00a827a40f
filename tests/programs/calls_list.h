// The list of calls.h.

#ifndef CALLS_LIST_H
#define CALLS_LIST_H

#define KERNEL_ARGUMENTS                                                                                    \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, void *stream, void **parameters, void **more)

#define COOPERATIVE_ARGUMENTS                                                                               \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, void *stream, void **parameters)

// Each function: its symbol, the name and the first version by which cuGetProcAddress knows it, its arguments.
#define CALLS(CALL)                                                                                         \
    CALL(cuCtxDestroy, cuCtxDestroy, 2000, (void *context))                                                 \
    CALL(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, (int device))                          \
    CALL(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, (int device))                              \
    CALL(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050,                                             \
         (void **stream, void *context, unsigned flags, int priority))                                      \
    CALL(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050,                                      \
         (void **stream, unsigned flags, int priority))                                                     \
    CALL(cuStreamDestroy_v2, cuStreamDestroy, 4000, (void *stream))                                         \
    CALL(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (void *stream, void *event, unsigned flags))            \
    CALL(cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070,                                                \
         (void *stream, device_pointer at, unsigned value, unsigned flags))                                 \
    CALL(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070,                                              \
         (void *stream, device_pointer at, unsigned value, unsigned flags))                                 \
    CALL(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (void *stream, void (*function)(void *), void *data))   \
    CALL(cuEventCreate, cuEventCreate, 2000, (void **event, unsigned flags))                                \
    CALL(cuEventRecord, cuEventRecord, 2000, (void *event, void *stream))                                   \
    CALL(cuEventQuery, cuEventQuery, 2000, (void *event))                                                   \
    CALL(cuEventSynchronize, cuEventSynchronize, 2000, (void *event))                                       \
    CALL(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *pool, size_t keep))                                \
    CALL(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, (void *ready, void *graph, void *outcome))         \
    CALL(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (void **pool, int device))                          \
    CALL(cuGetExportTable, cuGetExportTable, 3000, (void **table, const void *name))                        \
    CALL(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (int device, void *pool))                           \
    CALL(cuMemSetMemPool, cuMemSetMemPool, 13000, (struct location *location, unsigned type, void *pool))   \
    CALL(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (int device))                                   \
    CALL(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, (void *list, unsigned count, void *stream))         \
    CALL(cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync, 11010, (void *list, unsigned count, void *stream))    \
    CALL(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000,                                   \
         (unsigned long long *handle, void *at))                                                            \
    CALL(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                               \
         (void *handle, device_pointer at, size_t bytes, unsigned type, unsigned long long flags))          \
    CALL(cuGraphInstantiate, cuGraphInstantiate, 10000,                                                     \
         (void **ready, void *graph, void **error, char *log, size_t size))                                 \
    CALL(cuGraphInstantiate_v2, cuGraphInstantiate, 11000,                                                  \
         (void **ready, void *graph, void **error, char *log, size_t size))                                 \
    CALL(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,                                 \
         (void **ready, void *graph, struct ready_parameters *parameters))                                  \
    CALL(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000,                            \
         (void **ready, void *graph, struct ready_parameters *parameters))                                  \
    CALL(cuGraphUpload_ptsz, cuGraphUpload, 11010, (void *ready, void *stream))                             \
    CALL(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000,                                              \
         (void **node, void *graph, void *const *after, size_t count, const struct kernel_node *kernel))    \
    CALL(cuModuleGetFunction, cuModuleGetFunction, 2000, (void **function, void *module, const char *name)) \
    CALL(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020,                                                     \
         (device_pointer *at, size_t *bytes, void *module, const char *name))                               \
    CALL(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000,                                               \
         (void **library, const char *path, void *options, void *values, unsigned count, void *more,        \
          void *more_values, unsigned more_count))                                                          \
    CALL(cuLibraryGetModule, cuLibraryGetModule, 12000, (void **module, void *library))                     \
    CALL(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (void **kernel, void *library, const char *name))   \
    CALL(cuKernelGetFunction, cuKernelGetFunction, 12000, (void **function, void *kernel))                  \
    CALL(cuFuncLoad, cuFuncLoad, 12040, (void *function))                                                   \
    CALL(cuLaunch, cuLaunch, 2000, (void *function))                                                        \
    CALL(cuLaunchGrid, cuLaunchGrid, 2000, (void *function, int width, int height))                         \
    CALL(cuLaunchGridAsync, cuLaunchGridAsync, 2000, (void *function, int width, int height, void *stream)) \
    CALL(cuLaunchKernel, cuLaunchKernel, 4000, KERNEL_ARGUMENTS)                                            \
    CALL(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, KERNEL_ARGUMENTS)                                       \
    CALL(cuLaunchKernelEx, cuLaunchKernelEx, 11060,                                                         \
         (const struct launch *launch, void *function, void **parameters, void **more))                     \
    CALL(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060,                                                    \
         (const struct launch *launch, void *function, void **parameters, void **more))                     \
    CALL(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, COOPERATIVE_ARGUMENTS)                 \
    CALL(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, COOPERATIVE_ARGUMENTS)            \
    CALL(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000,                  \
         (struct launch_there *list, unsigned count, unsigned flags))                                       \
    CALL(cuInit, cuInit, 2000, (unsigned flags))                                                            \
    CALL(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count))                                            \
    CALL(cuDeviceGet, cuDeviceGet, 2000, (int *device, int ordinal))                                        \
    CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **context, int device))            \
    CALL(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (int device))                      \
    CALL(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (int device))                          \
    CALL(cuCtxCreate, cuCtxCreate, 2000, (void **context, unsigned flags, int device))                      \
    CALL(cuCtxCreate_v2, cuCtxCreate, 3020, (void **context, unsigned flags, int device))                   \
    CALL(cuCtxCreate_v3, cuCtxCreate, 11040,                                                                \
         (void **context, void *affinities, int count, unsigned flags, int device))                         \
    CALL(cuCtxCreate_v4, cuCtxCreate, 12050,                                                                \
         (void **context, struct context_parameters *parameters, unsigned flags, int device))               \
    CALL(cuCtxDestroy_v2, cuCtxDestroy, 4000, (void *context))                                              \
    CALL(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *context))                                           \
    CALL(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (void **context))                                       \
    CALL(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                  \
    CALL(cuStreamSynchronize, cuStreamSynchronize, 2000, (void *stream))                                    \
    CALL(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned limit, size_t value))                                \
    CALL(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (int device, void *resource, unsigned type)) \
    CALL(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040,                                       \
         (void **description, void *resources, unsigned count))                                             \
    CALL(cuGreenCtxCreate, cuGreenCtxCreate, 12040,                                                         \
         (void **context, void *description, int device, unsigned flags))                                   \
    CALL(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (void *context))                                      \
    CALL(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *free, size_t *total))                                \
    CALL(cuMemAlloc, cuMemAlloc, 2000, (unsigned *at, unsigned bytes))                                      \
    CALL(cuMemAlloc_v2, cuMemAlloc, 3020, (device_pointer *at, size_t bytes))                               \
    CALL(cuMemAllocPitch, cuMemAllocPitch, 2000,                                                            \
         (unsigned *at, unsigned *pitch, unsigned width, unsigned height, unsigned element))                \
    CALL(cuMemAllocPitch_v2, cuMemAllocPitch, 3020,                                                         \
         (device_pointer *at, size_t *pitch, size_t width, size_t height, unsigned element))                \
    CALL(cuMemAllocManaged, cuMemAllocManaged, 6000, (device_pointer *at, size_t bytes, unsigned flags))    \
    CALL(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **at, size_t bytes, unsigned flags))                   \
    CALL(cuMemFree, cuMemFree, 2000, (unsigned at))                                                         \
    CALL(cuMemFree_v2, cuMemFree, 3020, (device_pointer at))                                                \
    CALL(cuMemsetD8_v2, cuMemsetD8, 3020, (device_pointer at, unsigned char byte, size_t count))            \
    CALL(cuMemsetD8Async, cuMemsetD8Async, 3020,                                                            \
         (device_pointer at, unsigned char byte, size_t count, void *stream))                               \
    CALL(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020,                                                     \
         (device_pointer to, device_pointer from, size_t bytes, void *stream))                              \
    CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void *to, device_pointer from, size_t bytes))                \
    CALL(cuMemAllocAsync, cuMemAllocAsync, 11020, (device_pointer *at, size_t bytes, void *stream))         \
    CALL(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, (device_pointer *at, size_t bytes, void *stream))    \
    CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                                           \
         (device_pointer *at, size_t bytes, void *pool, void *stream))                                      \
    CALL(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020,                                      \
         (device_pointer *at, size_t bytes, void *pool, void *stream))                                      \
    CALL(cuMemFreeAsync, cuMemFreeAsync, 11020, (device_pointer at, void *stream))                          \
    CALL(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, (device_pointer at, void *stream))                     \
    CALL(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **pool, const struct pool_properties *properties))  \
    CALL(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *pool))                                           \
    CALL(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (void *pool, unsigned attribute, void *value)) \
    CALL(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020,                         \
         (void *handle, void *pool, unsigned type, unsigned long long flags))                               \
    CALL(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020,                     \
         (void **pool, void *handle, unsigned type, unsigned long long flags))                              \
    CALL(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (struct ipc *data, device_pointer at))      \
    CALL(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020,                                             \
         (device_pointer *at, void *pool, struct ipc *data))                                                \
    CALL(cuMemCreate, cuMemCreate, 10020,                                                                   \
         (unsigned long long *handle, size_t bytes, const struct physical_properties *properties,           \
          unsigned long long flags))                                                                        \
    CALL(cuMemRelease, cuMemRelease, 10020, (unsigned long long handle))                                    \
    CALL(cuMemAddressReserve, cuMemAddressReserve, 10020,                                                   \
         (device_pointer *at, size_t bytes, size_t alignment, device_pointer wish, unsigned long long flags)) \
    CALL(cuMemAddressFree, cuMemAddressFree, 10020, (device_pointer at, size_t bytes))                      \
    CALL(cuMemMap, cuMemMap, 10020,                                                                         \
         (device_pointer at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags)) \
    CALL(cuMemUnmap, cuMemUnmap, 10020, (device_pointer at, size_t bytes))                                  \
    CALL(cuMemSetAccess, cuMemSetAccess, 10020,                                                             \
         (device_pointer at, size_t bytes, const struct access *access, size_t count))                      \
    CALL(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,                                 \
         (void *handle, unsigned long long memory, unsigned type, unsigned long long flags))                \
    CALL(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,                             \
         (unsigned long long *memory, void *handle, unsigned type))                                         \
    CALL(cuArrayCreate, cuArrayCreate, 2000, (void **array, const struct array_old *asked))                 \
    CALL(cuArrayCreate_v2, cuArrayCreate, 3020, (void **array, const struct array *asked))                  \
    CALL(cuArray3DCreate, cuArray3DCreate, 2000, (void **array, const struct array_3d_old *asked))          \
    CALL(cuArray3DCreate_v2, cuArray3DCreate, 3020, (void **array, const struct array_3d *asked))           \
    CALL(cuArrayDestroy, cuArrayDestroy, 2000, (void *array))                                               \
    CALL(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000,                                              \
         (void **array, const struct array_3d *asked, unsigned levels))                                     \
    CALL(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *array))                             \
    CALL(cuStreamCreate, cuStreamCreate, 2000, (void **stream, unsigned flags))                             \
    CALL(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (void *stream, unsigned mode))               \
    CALL(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,                                   \
         (void *stream, void *graph, void *const *after, const void *edges, size_t count, unsigned mode))   \
    CALL(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *stream, void **graph))                       \
    CALL(cuGraphCreate, cuGraphCreate, 10000, (void **graph, unsigned flags))                               \
    CALL(cuGraphGetNodes, cuGraphGetNodes, 10000, (void *graph, void **nodes, size_t *count))               \
    CALL(cuGraphNodeGetType, cuGraphNodeGetType, 10000, (void *node, unsigned *type))                       \
    CALL(cuGraphDestroy, cuGraphDestroy, 10000, (void *graph))                                              \
    CALL(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                             \
         (void **node, void *graph, void *const *after, size_t count, struct memory_node *memory))          \
    CALL(cuGraphAddNode, cuGraphAddNode, 12020,                                                             \
         (void **node, void *graph, void *const *after, size_t count, struct graph_node *asked))            \
    CALL(cuGraphAddNode_v2, cuGraphAddNode, 12030,                                                          \
         (void **node, void *graph, void *const *after, const void *edges, size_t count,                    \
          struct graph_node *asked))                                                                        \
    CALL(cuGraphAddNode_v3, cuGraphAddNode, 13040,                                                          \
         (void **node, void *graph, void *const *after, const void *edges, size_t count,                    \
          struct graph_node *asked))                                                                        \
    CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,                                   \
         (void **ready, void *graph, unsigned long long flags))                                             \
    CALL(cuGraphUpload, cuGraphUpload, 11010, (void *ready, void *stream))                                  \
    CALL(cuGraphLaunch, cuGraphLaunch, 10000, (void *ready, void *stream))                                  \
    CALL(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, (void *ready, void *stream))                             \
    CALL(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *ready))                                      \
    CALL(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (struct ipc *handle, device_pointer at))               \
    CALL(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, (device_pointer *at, struct ipc handle, unsigned flags)) \
    CALL(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000,                                                  \
         (device_pointer *at, struct ipc handle, unsigned flags))                                           \
    CALL(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (device_pointer at))                               \
    CALL(cuImportExternalMemory, cuImportExternalMemory, 10000,                                             \
         (void **memory, const struct external *asked))                                                     \
    CALL(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (void *memory))                           \
    CALL(cuModuleLoad, cuModuleLoad, 2000, (void **module, const char *path))                               \
    CALL(cuModuleLoadData, cuModuleLoadData, 2000, (void **module, const void *image))                      \
    CALL(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010,                                                      \
         (void **module, const void *image, unsigned count, void *options, void *values))                   \
    CALL(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, (void **module, const void *image))            \
    CALL(cuModuleUnload, cuModuleUnload, 2000, (void *module))                                              \
    CALL(cuLibraryLoadData, cuLibraryLoadData, 12000,                                                       \
         (void **library, const void *code, void *options, void *values, unsigned count, void *more,        \
          void *more_values, unsigned more_count))                                                          \
    CALL(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000,                                                     \
         (device_pointer *at, size_t *bytes, void *library, const char *name))                              \
    CALL(cuLibraryUnload, cuLibraryUnload, 12000, (void *library))

#endif
