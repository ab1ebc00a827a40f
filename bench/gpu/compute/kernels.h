// Kernels, as text that the driver compiles.

// How many kernels that write one log may run at the same time, and where its stamps then begin.
#define PLACES 16
#define STAMPS_AT "272"

#define PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

// `work`: a fixed amount of arithmetic in each thread, `rounds` times. The first block notes when it began at a place of the
// log, and the last one that ends adds that and the time of its end: kernels that run at the same time have places of
// their own. `nothing`: does nothing. `spin`: waits for nanoseconds. `set`: writes a word. `await`: waits for a word, but
// not for ever: after `most` nanoseconds it notes that in the word behind it.
static const char ptx_kernels[] = PTX_HEAD
    // What a driver for tests, which runs no code, is to take each for.
    "// kernel work argument\n// kernel spin argument\n// kernel nothing 2000\n// kernel set writes\n// kernel await spins\n"
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry work(.param .u64 rounds, .param .u64 log, .param .u64 place) {\n"
    " .reg .u64 %i; .reg .u64 %a<6>; .reg .f32 %f; .reg .u32 %r<4>; .reg .pred %p;\n"
    " mov.u64 %a0, %globaltimer;\n"
    " ld.param.u64 %i, [rounds];\n ld.param.u64 %a1, [log];\n mov.u32 %r0, %tid.x;\n cvt.rn.f32.u32 %f, %r0;\n"
    "again:\n"
    " fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n"
    " fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n"
    " fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n"
    " fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n fma.rn.f32 %f, %f, 0f3F800001, 0f3F000000;\n"
    " sub.u64 %i, %i, 1;\n setp.ne.u64 %p, %i, 0;\n @%p bra again;\n"
    // Never true, but the compiler cannot know that: the arithmetic has to be done.
    " setp.eq.f32 %p, %f, 0fBF9E0652;\n @%p st.global.f32 [%a1], %f;\n"
    // Warps of a block end at quite different times.
    " bar.sync 0;\n setp.ne.u32 %p, %r0, 0;\n @%p bra out;\n setp.eq.u64 %p, %a1, 0;\n @%p bra out;\n"
    " ld.param.u64 %a2, [place];\n shl.b64 %a2, %a2, 4;\n add.u64 %a2, %a1, %a2;\n"
    " mov.u32 %r1, %ctaid.x;\n setp.ne.u32 %p, %r1, 0;\n @%p bra ended;\n st.volatile.global.u64 [%a2+24], %a0;\n"
    // Back to nought with the last block.
    "ended: membar.gl;\n mov.u32 %r2, %nctaid.x;\n sub.u32 %r2, %r2, 1;\n atom.global.inc.u32 %r3, [%a2+16], %r2;\n"
    " setp.ne.u32 %p, %r3, %r2;\n @%p bra out;\n membar.gl;\n mov.u64 %a3, %globaltimer;\n ld.volatile.global.u64 %a0, [%a2+24];\n"
    " atom.global.add.u64 %a4, [%a1], 1;\n ld.global.u64 %a5, [%a1+8];\n and.b64 %a4, %a4, %a5;\n shl.b64 %a4, %a4, 4;\n"
    " add.u64 %a5, %a1, %a4;\n st.global.v2.u64 [%a5+" STAMPS_AT "], {%a0, %a3};\n"
    "out: ret;\n}\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    " .reg .u64 %a<4>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [ns];\n mov.u64 %a1, %globaltimer;\n"
    "again: mov.u64 %a2, %globaltimer;\n sub.u64 %a3, %a2, %a1;\n setp.lt.u64 %p, %a3, %a0;\n @%p bra again;\n ret;\n}\n"
    ".visible .entry set(.param .u64 at, .param .u64 value) {\n"
    " .reg .u64 %a<2>; .reg .u32 %r;\n"
    " ld.param.u64 %a0, [at];\n ld.param.u64 %a1, [value];\n cvt.u32.u64 %r, %a1;\n st.volatile.global.u32 [%a0], %r;\n membar.sys;\n ret;\n}\n"
    ".visible .entry await(.param .u64 at, .param .u64 most) {\n"
    " .reg .u64 %a<5>; .reg .u32 %r<2>; .reg .pred %p;\n"
    " ld.param.u64 %a0, [at];\n ld.param.u64 %a1, [most];\n mov.u64 %a2, %globaltimer;\n"
    "again: ld.volatile.global.u32 %r0, [%a0];\n setp.ne.u32 %p, %r0, 0;\n @%p bra out;\n"
    " mov.u64 %a3, %globaltimer;\n sub.u64 %a4, %a3, %a2;\n setp.lt.u64 %p, %a4, %a1;\n @%p bra again;\n"
    " mov.u32 %r1, 1;\n st.volatile.global.u32 [%a0+4], %r1;\n membar.sys;\n"
    "out: ret;\n}\n";
