// Runs a grid of kernels on the calling thread. Blocks run one after another; a block's threads are
// fibers that yield only when they wait for each other, so a thread that never waits runs to its
// end at once. Every calling thread has its own fibers, so concurrent launches are independent.
#include "shim.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned MOST_SHARED = 163 * 1024;
constexpr unsigned BEHIND_SHARED = 256;
constexpr unsigned char CANARY = 0xa5;
constexpr uint32_t NOT_A_NUMBER = 0x7fc0deadu;
constexpr size_t STACK = 128 * 1024;
constexpr int NOBODY = -1;

// An order of otherwise unordered items: ascending, descending, or by a seed.
enum Order : uint32_t { FORWARD, REVERSE, SHUFFLED };

struct Fiber {
    jmp_buf at;
    unsigned char* stack = nullptr;
    bool started = false;
};

struct Warp {
    unsigned all = 0, ready = 0, barrier = 0, together = 0, ended = 0;
    enum shim_together kind[32];
    unsigned mask[32];
    unsigned source[32];
    uint64_t value[32];
};

struct Failure {
    char message[400];
    // address of an access outside all allocations, or 0
    uint64_t address;
};

struct State {
    const shim_kernel* kernel = nullptr;
    void** arguments = nullptr;
    Failure* failure = nullptr;
    bool inside = false, failed = false;
    unsigned threads = 0, warps = 0, waiting = 0, ended = 0, turn = 0;
    int current = NOBODY;
    Warp warp[MOST_THREADS / 32];
    // number of threads that have begun
    Fiber* fiber[MOST_THREADS] = {};
    unsigned warp_order[MOST_THREADS / 32];
    unsigned lane_order[32];
    bool forward = true;
    Fiber main;
    Fiber* running = nullptr;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber*> idle;

    ~State() {
        for (auto& fiber : fibers) {
            munmap(fiber->stack, STACK);
        }
    }
};

thread_local std::unique_ptr<State> owner;
thread_local State* state = nullptr;

uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

void put_in_order(unsigned* items, unsigned count, Order order, uint64_t seed) {
    for (unsigned i = 0; i < count; i++) {
        items[i] = order == REVERSE ? count - 1 - i : i;
    }
    for (unsigned i = count; order == SHUFFLED && i > 1; i--) {
        std::swap(items[i - 1], items[mix(seed + i) % i]);
    }
}

// The i-th block in an order of `count`. A shuffle uses a step coprime to the count.
uint64_t block_at(uint64_t i, uint64_t count, Order order, uint64_t seed) {
    if (order != SHUFFLED) {
        return order == REVERSE ? count - 1 - i : i;
    }
    uint64_t step = mix(seed) % count;
    while (std::gcd(step, count) != 1) {
        step++;
    }
    return (uint64_t)(((unsigned __int128)i * step + mix(seed + 1)) % count);
}

void begin_thread(int thread) {
    State& s = *state;
    s.current = thread;
    const unsigned at = (unsigned)thread;
    threadIdx = {at % blockDim.x, at / blockDim.x % blockDim.y, at / (blockDim.x * blockDim.y)};
}

[[noreturn]] void give_up() {
    state->failed = true;
    _longjmp(state->main.at, 1);
}

// Returns a warp whose lanes cannot continue, although some wait for others.
[[noreturn]] void fail_together(const Warp& warp) {
    const unsigned lane = (unsigned)__builtin_ctz(warp.together);
    const unsigned mask = warp.mask[lane];
    const char* what = warp.kind[lane] == SHIM_SYNC     ? "__syncwarp"
                       : warp.kind[lane] == SHIM_BALLOT ? "a vote"
                                                        : "a shuffle";
    if ((mask & ~(warp.all & ~warp.ended)) != 0) {
        shim_fail("%s whose mask 0x%08x names lanes that have ended (0x%08x) or are not there", what, mask,
                  mask & ~(warp.all & ~warp.ended));
    }
    shim_fail(
        "%s with mask 0x%08x, but lanes of it (0x%08x) wait at __syncthreads or with another mask or "
        "operation",
        what, mask, mask & ~warp.together ? mask & ~warp.together : mask);
}

// The next runnable thread, or none if all have ended.
int pick() {
    State& s = *state;
    for (;;) {
        for (; s.turn < s.warps; s.turn++) {
            const unsigned at = s.warp_order[s.turn];
            Warp& warp = s.warp[at];
            if (warp.ready != 0) {
                unsigned lane = (unsigned)__builtin_ctz(warp.ready);
                for (unsigned i = 0; !s.forward; i++) {
                    lane = s.lane_order[i];
                    if ((warp.ready >> lane & 1) != 0) {
                        break;
                    }
                }
                warp.ready &= ~(1u << lane);
                return (int)(at * 32 + lane);
            }
            if (warp.together != 0) {
                fail_together(warp);
            }
        }
        if (s.waiting == 0) {
            return NOBODY;
        }
        if (s.ended != 0) {
            shim_fail("__syncthreads that only %u of the block's %u threads reach: the others have ended",
                      s.waiting, s.threads);
        }
        for (unsigned at = 0; at < s.warps; at++) {
            std::swap(s.warp[at].ready, s.warp[at].barrier);
        }
        s.waiting = 0;
        s.turn = 0;
    }
}

void fiber_main();

Fiber* idle_fiber() {
    State& s = *state;
    if (s.idle.empty()) {
        void* stack =
            mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) {
            shim_fail("no memory for the stack of another thread");
        }
        // the lowest page is a guard: a stack overflow ends the process instead of corrupting
        // another stack
        mprotect(stack, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
        s.fibers.push_back(std::make_unique<Fiber>());
        s.fibers.back()->stack = (unsigned char*)stack;
        s.idle.push_back(s.fibers.back().get());
    }
    Fiber* fiber = s.idle.back();
    s.idle.pop_back();
    return fiber;
}

__attribute__((noinline)) void change(Fiber* from, Fiber* to) {
    state->running = to;
    if (_setjmp(from->at) != 0) {
        return;
    }
    if (to->started) {
        _longjmp(to->at, 1);
    }
    to->started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = to->stack;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

// Resumes a thread: where it waited, or from its start on an idle fiber.
void go_on(Fiber* from, int thread) {
    State& s = *state;
    Fiber* to = s.fiber[thread] != nullptr ? s.fiber[thread] : idle_fiber();
    s.current = thread;
    change(from, to);
}

// Loop of a fiber: runs one thread after another, from their starts.
void fiber_main() {
    State& s = *state;
    for (;;) {
        const int thread = s.current;
        s.fiber[thread] = s.running;
        begin_thread(thread);
        s.kernel->call(s.arguments);
        s.fiber[thread] = nullptr;
        s.warp[thread / 32].ended |= 1u << (thread % 32);
        s.ended++;
        const int next = pick();
        if (next != NOBODY && s.fiber[next] == nullptr) {
            s.current = next;
            continue;
        }
        Fiber* mine = s.running;
        s.idle.push_back(mine);
        if (next == NOBODY) {
            change(mine, &s.main);
        } else {
            go_on(mine, next);
        }
    }
}

// Suspends the current thread and resumes others.
void wait() {
    State& s = *state;
    const int thread = s.current;
    Fiber* mine = s.running;
    const int next = pick();
    if (next != thread) {
        go_on(mine, next);
    }
    begin_thread(thread);
}

void run_block() {
    State& s = *state;
    s.waiting = s.ended = s.turn = 0;
    for (unsigned at = 0; at < s.warps; at++) {
        const unsigned lanes = std::min(32u, s.threads - at * 32);
        Warp& warp = s.warp[at];
        warp.all = warp.ready = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
        warp.barrier = warp.together = warp.ended = 0;
    }
    s.main.started = true;
    go_on(&s.main, pick());
}

struct sigaction before_segv, before_bus;

void on_fault(int signal, siginfo_t* info, void*) {
    if (state != nullptr && state->inside) {
        // the signal stack is small, so the message is composed after the jump
        state->failure->address = (uint64_t)info->si_addr;
        give_up();
    }
    // a fault outside the shim: restore the previous handler, which runs when the instruction
    // faults again
    sigaction(signal, signal == SIGSEGV ? &before_segv : &before_bus, nullptr);
}

bool watch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    // a jump leaves the handler; on its separate stack it also receives stack overflows of fibers
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
    return true;
}

}  // namespace

thread_local uint3 threadIdx;
thread_local uint3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;
extern thread_local unsigned char dynamic_shared[] __asm__("shim_dynamic_shared");
alignas(128) thread_local unsigned char dynamic_shared[MOST_SHARED + BEHIND_SHARED];

// Writes the number of the failed thread, and the reason.
static void tell(Failure& failure, const char* format, va_list arguments) {
    const int length = snprintf(failure.message, sizeof(failure.message),
                                "block (%u, %u, %u), thread (%u, %u, %u): ", blockIdx.x, blockIdx.y,
                                blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    vsnprintf(failure.message + length, sizeof(failure.message) - (size_t)length, format, arguments);
}
static void tell(Failure& failure, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(failure, format, arguments);
    va_end(arguments);
}

extern "C" void shim_fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(*state->failure, format, arguments);
    va_end(arguments);
    give_up();
}

extern "C" void shim_barrier() {
    State& s = *state;
    s.warp[s.current / 32].barrier |= 1u << (s.current % 32);
    s.waiting++;
    wait();
}

extern "C" unsigned shim_lane() { return (unsigned)state->current % 32; }

extern "C" uint64_t shim_together(enum shim_together kind, unsigned mask, uint64_t value, unsigned source) {
    State& s = *state;
    Warp& warp = s.warp[s.current / 32];
    const unsigned lane = shim_lane();
    if ((mask >> lane & 1) == 0) {
        shim_fail("the mask 0x%08x of a warp's operation does not name lane %u, which does it", mask, lane);
    }
    if (kind == SHIM_SHUFFLE && (mask >> source & 1) == 0) {
        shim_fail("a shuffle reads lane %u, which its mask 0x%08x does not name", source, mask);
    }
    warp.kind[lane] = kind;
    warp.mask[lane] = mask;
    warp.source[lane] = source;
    warp.value[lane] = value;
    warp.together |= 1u << lane;
    bool complete = (warp.together & mask) == mask;
    for (unsigned rest = mask; complete && rest != 0; rest &= rest - 1) {
        const int other = __builtin_ctz(rest);
        complete = warp.mask[other] == mask && warp.kind[other] == kind;
    }
    if (!complete) {
        wait();
        return warp.value[lane];
    }
    uint64_t given[32];
    memcpy(given, warp.value, sizeof(given));
    uint64_t ballot = 0;
    for (unsigned rest = mask; kind == SHIM_BALLOT && rest != 0; rest &= rest - 1) {
        ballot |= (uint64_t)(given[__builtin_ctz(rest)] != 0) << __builtin_ctz(rest);
    }
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        const int other = __builtin_ctz(rest);
        warp.value[other] = kind == SHIM_BALLOT ? ballot : given[warp.source[other]];
    }
    warp.together &= ~mask;
    warp.ready |= mask & ~(1u << lane);
    return warp.value[lane];
}

// Position of a failed compiler check; the arguments of the checks begin with this.
struct shim_place {
    const char* file;
    uint32_t line, column;
};
static void fail_at(const void* place, const char* what) {
    const shim_place& at = *(const shim_place*)place;
    const char* slash = strrchr(at.file, '/');
    const char* file = slash == nullptr ? at.file : slash + 1;
    shim_fail("%s:%u: %s", file, at.line, what);
}
// The compiler's checks call these functions by name.
extern "C" void __ubsan_handle_type_mismatch_v1(void* place, uintptr_t) {
    fail_at(place, "an address that is not a multiple of its type's alignment");
}
extern "C" void __ubsan_handle_out_of_bounds(void* place, uintptr_t) {
    fail_at(place, "an index outside its array");
}
extern "C" void __ubsan_handle_shift_out_of_bounds(void* place, uintptr_t, uintptr_t) {
    fail_at(place, "a shift by as many bits as the type has, or more");
}
extern "C" void __ubsan_handle_divrem_overflow(void* place, uintptr_t, uintptr_t) {
    fail_at(place, "a division by zero");
}

extern "C" unsigned shim_most_shared() { return MOST_SHARED; }

// Runs all blocks; returns false, with the reason, if the launch failed. Orders are numbers of
// `Order`.
extern "C" bool shim_launch(const shim_kernel* kernel, const uint32_t grid[3], const uint32_t block[3],
                            uint32_t shared, void** arguments, uint32_t thread_order, uint32_t block_order,
                            uint64_t seed, Failure* failure) {
    static const bool watched = watch_faults();
    (void)watched;
    if (state == nullptr) {
        owner = std::make_unique<State>();
        state = owner.get();
    }
    State& s = *state;
    s.kernel = kernel;
    s.arguments = arguments;
    s.failure = failure;
    s.failed = false;
    s.threads = block[0] * block[1] * block[2];
    s.warps = (s.threads + 31) / 32;
    s.forward = thread_order == FORWARD;
    memset(s.fiber, 0, sizeof(s.fiber));
    s.idle.clear();
    for (auto& fiber : s.fibers) {
        s.idle.push_back(fiber.get());
    }
    blockDim = {block[0], block[1], block[2]};
    gridDim = {grid[0], grid[1], grid[2]};
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    memset(dynamic_shared + shared, CANARY, BEHIND_SHARED);
    s.inside = true;
    for (uint64_t i = 0; i < blocks && !s.failed; i++) {
        const uint64_t at = block_at(i, blocks, (Order)block_order, seed);
        blockIdx = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]),
                    (unsigned)(at / ((uint64_t)grid[0] * grid[1]))};
        put_in_order(s.warp_order, s.warps, (Order)thread_order, seed ^ mix(at));
        put_in_order(s.lane_order, 32, (Order)thread_order, seed ^ mix(at + 1));
        for (uint32_t word = 0; word < shared / 4; word++) {
            memcpy(dynamic_shared + 4 * word, &NOT_A_NUMBER, 4);
        }
        run_block();
    }
    s.inside = false;
    for (unsigned i = 0; i < BEHIND_SHARED && !s.failed; i++) {
        if (dynamic_shared[shared + i] != CANARY) {
            snprintf(failure->message, sizeof(failure->message),
                     "writes %u bytes behind the %u bytes of dynamic shared memory", i, shared);
            s.failed = true;
        }
    }
    if (s.failed && failure->address != 0) {
        tell(*failure, "touches the address %p, where no memory of a device is", (void*)failure->address);
    }
    if (s.failed) {
        // the others stopped in the middle, so they are restarted
        for (auto& fiber : s.fibers) {
            fiber->started = false;
        }
    }
    return !s.failed;
}
