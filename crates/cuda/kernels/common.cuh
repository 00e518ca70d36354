// Common header of all kernel files: integer types of fixed width, limits, and 16-bit floats. Works
// under NVRTC, with its built-ins alone, and under the host shim.
#pragma once

#ifdef GRAPHMILL_SHIM
#include "shim.h"
#else
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define UINT32_MAX 0xffffffffu
#define UINT64_MAX 0xffffffffffffffffull
#define FLT_MAX 3.402823466e+38f
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif

// All lanes of a warp.
#define ALL_LANES 0xffffffffu

// Late-bound arguments, which may differ in each replay of the same launch: if `late` is not null,
// its word i replaces the argument, which then has the value of the captured run.
static __device__ inline uint64_t late_word(const uint64_t* late, uint32_t i, uint64_t argument) {
    return late == nullptr ? argument : late[i];
}
static __device__ inline float late_float(const uint64_t* late, uint32_t i, float argument) {
    return late == nullptr ? argument : __uint_as_float((uint32_t)late[i]);
}

// Value of an IEEE 754 binary16 number; exact.
__device__ inline float from_half(unsigned short bits) {
#ifdef GRAPHMILL_SHIM
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(bits & 0x7fffu) << 13;
    if ((bits & 0x7c00u) == 0x7c00u) {
        return __uint_as_float(sign | 0x7f800000u | rest);
    }
    // the exponents' biases differ by 112; subnormal numbers are converted correctly, too
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * 0x1p112f));
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
}

// Nearest IEEE 754 binary16 number, ties to even; infinity from 65520 on.
__device__ inline unsigned short to_half(float value) {
#ifdef GRAPHMILL_SHIM
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return (unsigned short)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    }
    if (rest >= 0x477ff000u) {
        return (unsigned short)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) {
        // a subnormal result: the sum's last bit is the result's, so the addition rounds
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u));
    }
    return (unsigned short)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
#else
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#endif
}

// Value of a bfloat16 number; exact.
__device__ inline float from_bf16(unsigned short bits) { return __uint_as_float((uint32_t)bits << 16); }

// Nearest bfloat16 number, ties to even.
__device__ inline unsigned short to_bf16(float value) {
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (unsigned short)(bits >> 16 | 0x40u);
    }
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
