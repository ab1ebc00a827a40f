// Kernels, as text that the driver compiles.

#define PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

// One that does nothing, one that runs for a time, one that writes a byte in each page of 4 KiB.
static const char ptx_plain[] = PTX_HEAD
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    " .reg .u64 %a<4>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [ns];\n mov.u64 %a1, %globaltimer;\n"
    "again: mov.u64 %a2, %globaltimer;\n sub.u64 %a3, %a2, %a1;\n setp.lt.u64 %p, %a3, %a0;\n @%p bra again;\n ret;\n}\n"
    ".visible .entry fill(.param .u64 at, .param .u64 bytes) {\n"
    " .reg .u64 %a<6>; .reg .u32 %r<4>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [at];\n ld.param.u64 %a1, [bytes];\n"
    " mov.u32 %r0, %ctaid.x;\n mov.u32 %r1, %ntid.x;\n mov.u32 %r2, %tid.x;\n mad.lo.u32 %r3, %r0, %r1, %r2;\n"
    " mul.wide.u32 %a2, %r3, 4096;\n setp.ge.u64 %p, %a2, %a1;\n @%p bra out;\n"
    " add.u64 %a3, %a0, %a2;\n st.u8 [%a3], 7;\n"
    "out: ret;\n}\n";

// The device's malloc and printf, both behind a parameter so that neither is called unless asked for.
static const char ptx_heap[] = PTX_HEAD
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
    ".extern .func free(.param .b64 p);\n"
    ".visible .entry heap(.param .u64 bytes) {\n"
    " .reg .u64 %a<3>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [bytes];\n setp.eq.u64 %p, %a0, 0;\n @%p bra out;\n"
    " { .param .b64 n; .param .b64 r; st.param.b64 [n], %a0; call.uni (r), malloc, (n); ld.param.b64 %a1, [r]; }\n"
    " setp.eq.u64 %p, %a1, 0;\n @%p bra out;\n st.u8 [%a1], 1;\n"
    " { .param .b64 q; st.param.b64 [q], %a1; call.uni free, (q); }\n"
    "out: ret;\n}\n";
static const char ptx_print[] = PTX_HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n"
    ".global .align 1 .b8 text[3] = {111, 10, 0};\n"
    ".visible .entry print(.param .u64 really) {\n"
    " .reg .u64 %a<3>; .reg .pred %p; .reg .b32 %r;\n"
    " ld.param.u64 %a0, [really];\n setp.eq.u64 %p, %a0, 0;\n @%p bra out;\n"
    " mov.u64 %a1, text;\n cvta.global.u64 %a2, %a1;\n"
    " { .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %a2; st.param.b64 [v], 0;\n"
    "   call.uni (r), vprintf, (f, v); ld.param.b32 %r, [r]; }\n"
    "out: ret;\n}\n";

// A kernel whose threads have `bytes` of local memory each, indexed so that no compiler can do without it.
static char *ptx_frame(unsigned bytes) {
    char *text;
    if (asprintf(&text, PTX_HEAD
        ".visible .entry frame(.param .u64 out, .param .u32 at) {\n"
        " .local .align 16 .b8 buffer[%u];\n .reg .u64 %%a<4>; .reg .u32 %%r<6>; .reg .pred %%p;\n"
        " mov.u64 %%a0, buffer;\n ld.param.u32 %%r0, [at];\n mov.u32 %%r1, 0;\n"
        "again: mad.lo.u32 %%r2, %%r1, 4099, %%r0;\n rem.u32 %%r2, %%r2, %u;\n cvt.u64.u32 %%a1, %%r2;\n add.u64 %%a1, %%a0, %%a1;\n"
        " st.local.u8 [%%a1], %%r1;\n add.u32 %%r1, %%r1, 1;\n setp.lt.u32 %%p, %%r1, 64;\n @%%p bra again;\n"
        " cvt.u64.u32 %%a2, %%r0;\n add.u64 %%a2, %%a0, %%a2;\n ld.local.u8 %%r3, [%%a2];\n"
        " ld.param.u64 %%a3, [out];\n setp.eq.u64 %%p, %%a3, 0;\n @%%p bra done;\n st.u8 [%%a3], %%r3;\ndone: ret;\n}\n", bytes, bytes) < 0) exit(4);
    return text;
}

static char *ptx_global(unsigned long long bytes) {
    char *text;
    if (asprintf(&text, PTX_HEAD
        ".visible .global .align 256 .b8 big[%llu];\n"
        ".visible .entry first(.param .u64 out) { .reg .u64 %%a<2>; .reg .u32 %%r; mov.u64 %%a0, big; ld.param.u64 %%a1, [out];\n"
        " ld.global.u8 %%r, [%%a0]; st.u8 [%%a1], %%r; ret; }\n"
        ".visible .entry nothing() { ret; }\n", bytes) < 0) exit(4);
    return text;
}

// A managed variable, and a kernel that writes a byte in each page of 4 KiB of it.
static char *ptx_managed(unsigned long long bytes) {
    char *text;
    if (asprintf(&text, PTX_HEAD
        ".visible .global .attribute(.managed) .align 256 .b8 big[%llu];\n"
        ".visible .entry touch() {\n"
        " .reg .u64 %%a<6>; .reg .u32 %%r<4>; .reg .pred %%p;\n"
        " mov.u64 %%a0, big;\n mov.u64 %%a1, %llu;\n"
        " mov.u32 %%r0, %%ctaid.x;\n mov.u32 %%r1, %%ntid.x;\n mov.u32 %%r2, %%tid.x;\n mad.lo.u32 %%r3, %%r0, %%r1, %%r2;\n"
        " mul.wide.u32 %%a2, %%r3, 4096;\n setp.ge.u64 %%p, %%a2, %%a1;\n @%%p bra out;\n"
        " add.u64 %%a3, %%a0, %%a2;\n st.global.u8 [%%a3], 7;\n"
        "out: ret;\n}\n"
        ".visible .entry nothing() { ret; }\n", bytes, bytes) < 0) exit(4);
    return text;
}

// So many managed variables of 4 bytes, and one of 3 MiB.
static char *ptx_managed_many(int count) {
    char *text = malloc(1 << 16), *end = text;
    if (!text) exit(4);
    end += sprintf(end, PTX_HEAD ".visible .entry nothing() { ret; }\n");
    for (int i = 0; i < count; i++) end += sprintf(end, ".visible .global .attribute(.managed) .u32 small%d;\n", i);
    sprintf(end, ".visible .global .attribute(.managed) .align 8 .b8 large[3145728];\n");
    return text;
}

static CUmodule plain_module;

static CUfunction plain(const char *name) {
    CUfunction function;
    if (!plain_module) NEED(cuModuleLoadData(&plain_module, ptx_plain));
    NEED(cuModuleGetFunction(&function, plain_module, name));
    return function;
}

// One block of one thread, with up to two words as its parameters.
static CUresult launch(CUfunction function, unsigned long long first, unsigned long long second, CUstream stream) {
    void *words[] = {&first, &second};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, words, NULL);
}

// Writes a byte in each 4 KiB of an extent.
static CUresult fill(unsigned long long at, unsigned long long bytes) {
    void *words[] = {&at, &bytes};
    CUresult result = cuLaunchKernel(plain("fill"), (bytes / 4096 + 255) / 256 + 1, 1, 1, 256, 1, 1, 0, 0, words, NULL);
    return result ? result : cuCtxSynchronize();
}
