// Seeing: what NVML says of a process and of the GPU, what cuMemGetInfo says, and a line of JSON about both.

// NVML by hand, so that its header is not needed.
struct nvml_process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct nvml_memory { unsigned version; unsigned long long total, reserved, free, used; };
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory) | 2u << 24)

static struct {
    void *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_index)(unsigned, void **);
    int (*by_uuid)(const char *, void **);
    int (*uuid)(void *, char *, unsigned);
    int (*compute)(void *, unsigned *, struct nvml_process *);
    int (*graphics)(void *, unsigned *, struct nvml_process *);
    int (*memory)(void *, struct nvml_memory *);
} nvml;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void nvml_load(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) { printf("{\"error\":\"no NVML\"}\n"); exit(3); }
    *(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml.shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&nvml.by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml.uuid = dlsym(library, "nvmlDeviceGetUUID");
    *(void **)&nvml.compute = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&nvml.graphics = dlsym(library, "nvmlDeviceGetGraphicsRunningProcesses_v3");
    *(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
}

static void nvml_open(void) {
    nvml_load();
    int result = nvml.init();
    if (!result) result = nvml.by_index(0, &nvml.device);
    if (result) { printf("{\"error\":\"NVML: %d\"}\n", result); exit(3); }
}

// What NVML says that a process holds, in bytes; -1 where it does not list the process.
static long long nvml_of(unsigned pid) {
    struct nvml_process list[64];
    unsigned count = 64;
    if (nvml.compute(nvml.device, &count, list)) return -2;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == pid) return list[i].used;
    count = 64;
    if (nvml.graphics(nvml.device, &count, list)) return -1;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == pid) return list[i].used;
    return -1;
}

static long long nvml_own(void) { return nvml_of(getpid()); }

static long long nvml_used(void) {
    struct nvml_memory memory = {.version = NVML_MEMORY_V2};
    return nvml.memory(nvml.device, &memory) ? -1 : (long long)memory.used;
}

static long long cuda_free(void) {
    size_t available, total;
    return cuMemGetInfo(&available, &total) ? -1 : (long long)available;
}

// Every process that NVML lists, as a JSON object.
static void print_processes(void) {
    struct nvml_process list[64];
    const char *between = "";
    printf(",\"all\":{");
    for (int graphics = 0; graphics < 2; graphics++) {
        unsigned count = 64;
        if ((graphics ? nvml.graphics : nvml.compute)(nvml.device, &count, list)) continue;
        for (unsigned i = 0; i < count; i++, between = ",")
            printf("%s\"%s%u\":%lld", between, graphics ? "graphics " : "", list[i].pid, (long long)list[i].used);
    }
    printf("}");
}

// Fields for the next line.
static char fields[65536];
static void field(const char *name, const char *format, ...) {
    size_t used = strlen(fields);
    used += snprintf(fields + used, sizeof fields - used, ",\"%s\":", name);
    va_list more;
    va_start(more, format);
    vsnprintf(fields + used, sizeof fields - used, format, more);
    va_end(more);
}

static const char *who = "";
static int list_all;
static long long last_own, last_free, last_device;

// One line: the driver's answer, what NVML says now and how it changed since the line before.
static void mark(int result, const char *format, ...) {
    long long own = nvml_own(), available = cuda_free(), device = nvml_used();
    printf("{\"at\":\"");
    va_list more;
    va_start(more, format);
    vprintf(format, more);
    va_end(more);
    printf("\",\"r\":%d%s,\"nvml\":%lld,\"nvml_d\":%lld,\"device_d\":%lld", result, fields, own, own - last_own, device - last_device);
    if (available >= 0) printf(",\"free_d\":%lld", last_free > 0 ? available - last_free : 0);
    if (*who) printf(",\"who\":\"%s %d\"", who, getpid());
    if (list_all) print_processes();
    printf("}\n");
    fields[0] = 0;
    last_own = own;
    last_free = available;
    last_device = device;
}

// Only the fields.
static void say(const char *format, ...) {
    printf("{\"at\":\"");
    va_list more;
    va_start(more, format);
    vprintf(format, more);
    va_end(more);
    printf("\"%s", fields);
    if (*who) printf(",\"who\":\"%s %d\"", who, getpid());
    printf("}\n");
    fields[0] = 0;
}

#define STEP(call, ...) do { CUresult r_ = (call); mark(r_, __VA_ARGS__); } while (0)
// What must not fail for the rest to make sense.
#define NEED(call) do { CUresult r_ = (call); if (r_) { printf("{\"error\":\"%s: %d\"}\n", #call, r_); exit(4); } } while (0)

static CUcontext own_context;

// NVML, the driver and the primary context, current.
static void start(void) {
    nvml_open();
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&own_context, 0));
    NEED(cuCtxSetCurrent(own_context));
    mark(0, "context");
}

// The 2 MiB pages that live allocations touch, counted.
#define PAGES (1u << 18)
static struct { unsigned long long page; int users; } page_table[PAGES];
static long page_count;

static void pages(unsigned long long address, unsigned long long bytes, int by) {
    if (!bytes) return;
    for (unsigned long long page = address / PIECE; page <= (address + bytes - 1) / PIECE; page++) {
        unsigned at = page * 0x9E3779B97F4A7C15ull >> 40 & (PAGES - 1);
        while (page_table[at].page && page_table[at].page != page) at = (at + 1) & (PAGES - 1);
        page_table[at].page = page;
        int before = page_table[at].users;
        page_table[at].users += by;
        page_count += (before == 0) - (page_table[at].users == 0);
    }
}

// A random number that is the same in each run.
static unsigned long long seed = 88172645463325252ull;
static double random_unit(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 11) * 0x1p-53;
}

// Between two sizes, each order of magnitude as likely as the others.
static unsigned long long random_size(double least, double most) {
    return (unsigned long long)exp(log(least) + random_unit() * (log(most + 1) - log(least)));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

// The time of one call in ns: the median of 1000 rounds of `each` calls.
#define TIME(name, each, call) do { \
        double times_[1000]; \
        int result_ = 0; \
        for (int round_ = 0; round_ < 1000; round_++) { \
            double begin_ = now_ns(); \
            for (int i_ = 0; i_ < (each); i_++) result_ |= (call); \
            times_[round_] = (now_ns() - begin_) / (each); \
        } \
        field("r", "%d", result_); \
        field("ns", "%.1f", median(times_, 1000)); \
        field("slowest_ns", "%.0f", times_[999]); \
        say("%s", name); \
    } while (0)
