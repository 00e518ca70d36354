// CUDA C++'s built-ins for a host C++ compiler: kernels compile unchanged, and a block's threads
// run one at a time, as fibers. It checks what a device requires: barriers reached by all threads,
// masks of existing lanes, aligned addresses.
//
// It does not detect data races (but see the orders of a launch), nor effects of a device's memory
// model.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// Vectors, aligned as on a device.
#define SHIM_VECTOR2(name, type)              \
    struct __align__(2 * sizeof(type)) name { \
        type x, y;                            \
    };                                        \
    static inline name make_##name(type x, type y) { return {x, y}; }
#define SHIM_VECTOR4(name, type, alignment) \
    struct __align__(alignment) name {      \
        type x, y, z, w;                    \
    };                                      \
    static inline name make_##name(type x, type y, type z, type w) { return {x, y, z, w}; }
SHIM_VECTOR2(float2, float)
SHIM_VECTOR2(int2, int)
SHIM_VECTOR2(uint2, unsigned)
SHIM_VECTOR2(ushort2, unsigned short)
SHIM_VECTOR2(longlong2, long long)
SHIM_VECTOR2(ulonglong2, unsigned long long)
SHIM_VECTOR4(float4, float, 16)
SHIM_VECTOR4(int4, int, 16)
SHIM_VECTOR4(uint4, unsigned, 16)
SHIM_VECTOR4(ushort4, unsigned short, 8)
SHIM_VECTOR4(uchar4, unsigned char, 4)
#undef SHIM_VECTOR2
#undef SHIM_VECTOR4
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};

// Indices and sizes of the current thread, its block and its grid.
extern thread_local uint3 threadIdx;
extern thread_local uint3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;
static constexpr int warpSize = 32;

// Operations among the lanes of a warp.
enum shim_together { SHIM_SYNC, SHIM_SHUFFLE, SHIM_BALLOT };
// Waits for the lanes of the mask. A shuffle returns the value of lane `source`, a ballot the lanes
// whose value is not 0.
extern "C" uint64_t shim_together(enum shim_together kind, unsigned mask, uint64_t value, unsigned source);
// Waits for the block.
extern "C" void shim_barrier();
// Index of the current lane.
extern "C" unsigned shim_lane();
// Ends the launch with this message.
extern "C" [[noreturn]] void shim_fail(const char* format, ...);

static inline void __syncthreads() { shim_barrier(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { shim_together(SHIM_SYNC, mask, 0, 0); }
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return (unsigned)shim_together(SHIM_BALLOT, mask, predicate != 0, 0);
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <typename T> static inline T shim_shuffle(unsigned mask, T value, unsigned source) {
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = shim_together(SHIM_SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const unsigned lane = shim_lane();
    return shim_shuffle(mask, value,
                        (lane & ~(unsigned)(width - 1)) | ((unsigned)source & (unsigned)(width - 1)));
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32) {
    const unsigned lane = shim_lane();
    const bool inside = (lane & (unsigned)(width - 1)) + step < (unsigned)width;
    return shim_shuffle(mask, value, inside ? lane + step : lane);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32) {
    const unsigned lane = shim_lane();
    const bool inside = (lane & (unsigned)(width - 1)) >= step;
    return shim_shuffle(mask, value, inside ? lane - step : lane);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned lane = shim_lane();
    const unsigned source = lane ^ (unsigned)bits;
    return shim_shuffle(mask, value, (source ^ lane) < (unsigned)width ? source : lane);
}

// Memory.
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }
template <typename T> static inline T __ldg(const T* at) { return *at; }
template <typename T> static inline T __ldcs(const T* at) { return *at; }
template <typename T> static inline T __ldcg(const T* at) { return *at; }
template <typename T> static inline T __ldca(const T* at) { return *at; }
template <typename T> static inline void __stcs(T* at, T value) { *at = value; }
template <typename T> static inline void __stcg(T* at, T value) { *at = value; }

// Replaces the value by change(value), and returns the old value.
template <typename T, typename F> static inline T shim_update(T* at, F change) {
    T found, next;
    __atomic_load(at, &found, __ATOMIC_RELAXED);
    do {
        next = change(found);
    } while (!__atomic_compare_exchange(at, &found, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return found;
}
template <typename T> struct shim_same {
    typedef T type;
};
// Types for which a device has these atomics; `unsigned long` and `unsigned long long` are one type
// there.
template <typename T>
static constexpr bool shim_atomic =
    std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
    std::is_same<T, unsigned long>::value || std::is_same<T, unsigned long long>::value;
#define SHIM_ATOMIC(name, condition, next)                                                 \
    template <typename T> static inline T name(T* at, typename shim_same<T>::type value) { \
        static_assert(condition, #name " does not take this type");                        \
        return shim_update(at, [=](T found) -> T { return next; });                        \
    }
SHIM_ATOMIC(atomicAdd, shim_atomic<T> || (std::is_same<T, float>::value), found + value)
SHIM_ATOMIC(atomicSub, (shim_atomic<T> && sizeof(T) == 4), found - value)
SHIM_ATOMIC(atomicMin, shim_atomic<T>, value < found ? value : found)
SHIM_ATOMIC(atomicMax, shim_atomic<T>, value > found ? value : found)
SHIM_ATOMIC(atomicAnd, shim_atomic<T>, found& value)
SHIM_ATOMIC(atomicOr, shim_atomic<T>, found | value)
SHIM_ATOMIC(atomicXor, shim_atomic<T>, found ^ value)
SHIM_ATOMIC(atomicExch, shim_atomic<T> || (std::is_same<T, float>::value), (void(found), value))
#undef SHIM_ATOMIC
template <typename T>
static inline T atomicCAS(T* at, typename shim_same<T>::type expected, typename shim_same<T>::type value) {
    static_assert(shim_atomic<T>, "atomicCAS does not take this type");
    return shim_update(at, [=](T found) -> T { return found == expected ? value : found; });
}

// Bits.
template <typename To, typename From> static inline To shim_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
static inline unsigned __float_as_uint(float value) { return shim_bits<unsigned>(value); }
static inline int __float_as_int(float value) { return shim_bits<int>(value); }
static inline float __uint_as_float(unsigned bits) { return shim_bits<float>(bits); }
static inline float __int_as_float(int bits) { return shim_bits<float>(bits); }
static inline long long __double_as_longlong(double value) { return shim_bits<long long>(value); }
static inline double __longlong_as_double(long long bits) { return shim_bits<double>(bits); }
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
static inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz((unsigned)bits); }
static inline int __clzll(long long bits) {
    return bits == 0 ? 64 : __builtin_clzll((unsigned long long)bits);
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Arithmetic. A device's approximations are exact here.
template <typename A, typename B> static inline typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <typename A, typename B> static inline typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
static inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
// names that the C library also declares
#define __expf(value) expf(value)
#define __logf(value) logf(value)
#define __powf(base, exponent) powf(base, exponent)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float value) { return sqrtf(value); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __saturatef(float value) { return fminf(fmaxf(value, 0.0f), 1.0f); }
static inline float __uint2float_rn(unsigned value) { return (float)value; }
static inline float __int2float_rn(int value) { return (float)value; }
static inline int __float2int_rn(float value) { return (int)rintf(value); }
static inline unsigned __float2uint_rn(float value) { return (unsigned)rintf(value); }

// Kernels of a file: name, number of parameters, a function that calls the kernel with the values
// that pointers point to, and one that copies those values, to 8 bytes each.
struct shim_kernel {
    const char* name;
    unsigned parameters;
    void (*call)(void** arguments);
    void (*keep)(void** arguments, uint64_t* values);
};
template <typename... P, size_t... I>
static inline void shim_apply(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    (void)arguments;
    kernel(*(const typename std::remove_cv<P>::type*)arguments[I]...);
}
template <typename... P> static constexpr unsigned shim_parameters(void (*)(P...)) { return sizeof...(P); }
template <typename... P> static inline void shim_unpack(void (*kernel)(P...), void** arguments) {
    shim_apply(kernel, arguments, std::index_sequence_for<P...>{});
}
template <auto kernel> static void shim_call(void** arguments) { shim_unpack(kernel, arguments); }
template <typename P> static inline void shim_keep_one(const void* argument, void* value) {
    static_assert(sizeof(P) <= 8, "parameters are of 8 bytes at most");
    memcpy(value, argument, sizeof(P));
}
template <typename... P, size_t... I>
static inline void shim_keep_each(void (*)(P...), void** arguments, uint64_t* values, std::index_sequence<I...>) {
    (void)arguments, (void)values;
    (shim_keep_one<P>(arguments[I], values + I), ...);
}
template <typename... P> static inline void shim_keep_all(void (*kernel)(P...), void** arguments, uint64_t* values) {
    shim_keep_each(kernel, arguments, values, std::index_sequence_for<P...>{});
}
template <auto kernel> static void shim_keep(void** arguments, uint64_t* values) { shim_keep_all(kernel, arguments, values); }
#define SHIM_KERNEL(kernel) {#kernel, shim_parameters(&kernel), shim_call<&kernel>, shim_keep<&kernel>}
