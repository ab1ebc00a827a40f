// What takes the GPU's memory without CUDA: OpenCL, Vulkan, video. Each where its headers and libraries are there.

#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

static void opencl(char **arguments) {
    nvml_open();
    list_all = 1;
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) { field("why", "\"no libOpenCL.so.1\""); say("not run"); return; }
#define CL(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name)
    CL(clGetPlatformIDs); CL(clGetDeviceIDs); CL(clCreateContext); CL(clCreateCommandQueue); CL(clCreateBuffer);
    CL(clEnqueueWriteBuffer); CL(clFinish); CL(clReleaseMemObject); CL(clReleaseContext); CL(clReleaseCommandQueue);
    cl_platform_id platforms[8];
    cl_device_id device;
    cl_uint count = 0, found = 0;
    cl_int result;
    mark(0, "before OpenCL");
    mark(clGetPlatformIDs_(8, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && !found; i++) {
        clGetDeviceIDs_(platforms[i], CL_DEVICE_TYPE_GPU, 1, &device, &found);
        mark(0, "clGetDeviceIDs, platform %u of %u: %u", i, count, found);
    }
    if (!found) { say("no GPU"); return; }
    cl_context context = clCreateContext_(NULL, 1, &device, NULL, NULL, &result);
    mark(result, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue_(context, device, 0, &result);
    mark(result, "clCreateCommandQueue");
    cl_mem buffer = clCreateBuffer_(context, CL_MEM_READ_WRITE, 64 * MIB, NULL, &result);
    mark(result, "clCreateBuffer(64 MiB)");
    char one = 1;
    mark(clEnqueueWriteBuffer_(queue, buffer, CL_TRUE, 0, 1, &one, 0, NULL, NULL), "one byte written");
    mark(clFinish_(queue), "finished");
    mark(clReleaseMemObject_(buffer), "buffer released");
    mark(clReleaseCommandQueue_(queue), "queue released");
    mark(clReleaseContext_(context), "context released");
}
#else
static void opencl(char **arguments) { say("not built"); }
#endif

#if __has_include(<vulkan/vulkan.h>)
#include <vulkan/vulkan.h>

static void vulkan(char **arguments) {
    nvml_open();
    list_all = 1;
    void *library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!library) { field("why", "\"no libvulkan.so.1\""); say("not run"); return; }
#define VK(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name)
    VK(vkCreateInstance); VK(vkEnumeratePhysicalDevices); VK(vkGetPhysicalDeviceMemoryProperties); VK(vkCreateDevice);
    VK(vkAllocateMemory); VK(vkFreeMemory); VK(vkDestroyDevice); VK(vkDestroyInstance); VK(vkGetDeviceProcAddr);
    VK(vkGetPhysicalDeviceProperties);
    mark(0, "before Vulkan");
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    VkInstance instance;
    VkResult result = vkCreateInstance_(&instance_info, NULL, &instance);
    mark(result, "vkCreateInstance");
    VkPhysicalDevice physical[8];
    uint32_t count = 8;
    if (result) return;
    mark(vkEnumeratePhysicalDevices_(instance, &count, physical), "vkEnumeratePhysicalDevices");
    if (!count) return;
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties_(physical[0], &properties);
    field("name", "\"%s\"", properties.deviceName);
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const char *extensions[] = {"VK_KHR_external_memory_fd"};
    VkDeviceCreateInfo device_info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue, .enabledExtensionCount = 1, .ppEnabledExtensionNames = extensions};
    VkDevice device;
    result = vkCreateDevice_(physical[0], &device_info, NULL, &device);
    mark(result, "vkCreateDevice");
    if (result) return;
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties_(physical[0], &types);
    uint32_t local = 0;
    while (local < types.memoryTypeCount && !(types.memoryTypes[local].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)) local++;
    static const VkDeviceSize sizes[] = {64 * MIB, 1024, 3 * MIB};
    VkDeviceMemory memory;
    for (int i = 0; i < 3; i++) {
        VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = sizes[i], .memoryTypeIndex = local};
        mark(vkAllocateMemory_(device, &allocate, NULL, &memory), "vkAllocateMemory(%llu KiB)", (unsigned long long)sizes[i] / KIB);
        vkFreeMemory_(device, memory, NULL);
        mark(0, "freed");
    }
    VkExportMemoryAllocateInfo exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &exported, .allocationSize = 64 * MIB, .memoryTypeIndex = local};
    mark(vkAllocateMemory_(device, &allocate, NULL, &memory), "vkAllocateMemory(64 MiB) to be exported");
    PFN_vkGetMemoryFdKHR get_fd = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr_(device, "vkGetMemoryFdKHR");
    VkMemoryGetFdInfoKHR which = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = memory, .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    int fd = -1;
    mark(get_fd(device, &which, &fd), "vkGetMemoryFdKHR");
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    mark(0, "CUDA context");
    CUexternalMemory external;
    CUdeviceptr at;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle = {.fd = fd}, .size = 64 * MIB};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.size = 64 * MIB};
    STEP(cuImportExternalMemory(&external, &handle), "cuImportExternalMemory");
    STEP(cuExternalMemoryGetMappedBuffer(&at, external, &part), "cuExternalMemoryGetMappedBuffer");
    STEP(cuMemsetD8(at, 1, 64 * MIB), "set");
    vkFreeMemory_(device, memory, NULL);
    mark(0, "Vulkan frees it");
    STEP(cuMemFree(at), "cuMemFree of the buffer");
    STEP(cuDestroyExternalMemory(external), "cuDestroyExternalMemory");
    vkDestroyDevice_(device, NULL);
    mark(0, "Vulkan device destroyed");
    vkDestroyInstance_(instance, NULL);
    mark(0, "Vulkan instance destroyed");
}
#else
static void vulkan(char **arguments) { say("not built"); }
#endif

#if __has_include(<ffnvcodec/dynlink_cuviddec.h>)
#include <ffnvcodec/dynlink_cuviddec.h>

static void video(char **arguments) {
    void *encoder = dlopen("libnvidia-encode.so.1", RTLD_NOW), *library = dlopen("libnvcuvid.so.1", RTLD_NOW);
    field("encoder", "%d", encoder != NULL);
    field("decoder", "%d", library != NULL);
    say("libraries");
    if (!library) return;
    start();
    CUresult (*create)(void **, CUVIDDECODECREATEINFO *), (*destroy)(void *);
    *(void **)&create = dlsym(library, "cuvidCreateDecoder");
    *(void **)&destroy = dlsym(library, "cuvidDestroyDecoder");
    void *decoder;
    CUVIDDECODECREATEINFO asked = {
        .ulWidth = 1920, .ulHeight = 1080, .ulMaxWidth = 1920, .ulMaxHeight = 1080, .ulTargetWidth = 1920, .ulTargetHeight = 1080,
        .ulNumDecodeSurfaces = 20, .ulNumOutputSurfaces = 2, .CodecType = cudaVideoCodec_H264, .ChromaFormat = cudaVideoChromaFormat_420,
        .OutputFormat = cudaVideoSurfaceFormat_NV12, .ulCreationFlags = cudaVideoCreate_PreferCUVID,
    };
    list_all = 1;
    for (int i = 0; i < 2; i++) {
        CUresult result = create(&decoder, &asked);
        mark(result, "cuvidCreateDecoder, 1920x1080, 20 surfaces");
        if (!result) mark(destroy(decoder), "destroyed");
    }
}
#else
static void video(char **arguments) { say("not built"); }
#endif
