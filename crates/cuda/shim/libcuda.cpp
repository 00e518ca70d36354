// Stand-in for the vendor's driver, for tests of its callers: a library of that name, with the same
// functions, whose two devices are simulated by the shim. It is stricter than the driver where
// possible: calls require a current context, streams and events must have been created, and blocks
// may use large shared memory only after it was allowed.
//
// The environment configures it: GRAPHMILL_STAND_IN holds words of `version=N`, `init=STATUS`,
// `devices=N`, `capability=N`, `refuse-read-only`, `broken-jit`, `no-peers` and `no-graphs`.
#include "shim.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    PEER_ALREADY = 704,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

struct Context {
    int device;
    int held = 0;
    uint64_t used = 0;
    std::set<int> peers;
};
struct Event {
    bool recorded = false;
    double seconds = 0;
};
using Work = std::vector<std::function<int()>>;
struct Capture {
    std::thread::id by;
    Work work;
    bool spoilt = false;
};
struct Function {
    const shim_kernel* kernel;
    unsigned allowed = 48 * 1024;
};

constexpr uint64_t MEMORY = 64 << 20;
std::mutex lock;
Context contexts[2] = {{0}, {1}};
bool initialised = false;
thread_local Context* current = nullptr;
std::map<uint64_t, std::pair<size_t, Context*>> memory;
std::set<void*> host, registered, streams;
std::map<void*, Event> events;
std::set<std::string*> modules;
std::map<void*, Function> functions;
std::map<void*, Capture> captures;
std::set<Work*> graphs, ready;
// True while NCCL's stand-in starts kernels that wait for each other.
std::atomic<bool> grouping{false};

std::string setting(const char* name) {
    const char* all = getenv("GRAPHMILL_STAND_IN");
    const std::string words = std::string(" ") + (all == nullptr ? "" : all) + " ";
    const size_t at = words.find(std::string(" ") + name);
    if (at == std::string::npos) {
        return "";
    }
    const std::string word = words.substr(at + 1, words.find(' ', at + 1) - at - 1);
    const size_t equals = word.find('=');
    return equals == std::string::npos ? "yes" : word.substr(equals + 1);
}
int number(const char* name, int otherwise) {
    const std::string value = setting(name);
    return value.empty() ? otherwise : atoi(value.c_str());
}
bool is_stream(void* stream) { return streams.count(stream) != 0; }
// Stores work of a stream that is being captured; returns false if it is not.
bool keep(void* stream, std::function<int()> work) {
    const auto found = captures.find(stream);
    if (found == captures.end()) {
        return false;
    }
    found->second.work.push_back(std::move(work));
    return true;
}
// Invalidates the captures that a call must not interrupt: of that stream, of all streams, or of
// this thread.
bool spoils(bool (*meets)(void*, const Capture&, void*), void* stream) {
    bool any = false;
    for (auto& [of, capture] : captures) {
        if (meets(of, capture, stream)) {
            any = capture.spoilt = true;
        }
    }
    return any;
}
bool of_stream(void* of, const Capture&, void* stream) { return of == stream; }
bool of_any(void*, const Capture&, void*) { return true; }
bool of_thread(void*, const Capture& capture, void*) { return capture.by == std::this_thread::get_id(); }

}  // namespace

#define ENTER \
    std::lock_guard<std::mutex> guard(lock); \
    if (current == nullptr || current->held == 0) { \
        return INVALID_CONTEXT; \
    }
#define NOT_CAPTURED(meets, stream) \
    if (spoils(meets, stream)) { \
        return CAPTURE_UNSUPPORTED; \
    }
// Calls that may wait for a device must not fall between kernels that wait for each other.
#define NOT_IN_GROUP \
    if (grouping) { \
        fprintf(stderr, "%s while a group of kernels is started\n", __func__); \
        abort(); \
    }
#define NEED(condition, status) \
    if (!(condition)) { \
        return status; \
    }

extern "C" {

int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
const shim_kernel* shim_find(const char* name);
struct Failure {
    char message[400];
    uint64_t address;
};
bool shim_launch(const shim_kernel*, const uint32_t[3], const uint32_t[3], uint32_t, void**, uint32_t, uint32_t,
                 uint64_t, Failure*);

int cuInit(unsigned) {
    initialised = number("init", 0) == 0;
    return number("init", 0);
}
int cuDriverGetVersion(int* version) {
    *version = number("version", 13000);
    return SUCCESS;
}
int cuGetErrorName(int status, const char** name) {
    static const std::map<int, const char*> names = {
        {1, "CUDA_ERROR_INVALID_VALUE"},
        {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {218, "CUDA_ERROR_INVALID_PTX"},
        {400, "CUDA_ERROR_INVALID_HANDLE"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {999, "CUDA_ERROR_UNKNOWN"},
    };
    const auto found = names.find(status);
    *name = found == names.end() ? nullptr : found->second;
    return found == names.end() ? INVALID_VALUE : SUCCESS;
}
int cuGetErrorString(int status, const char** words) {
    return cuGetErrorName(status, words);
}
int cuDeviceGetCount(int* count) {
    NEED(initialised, NOT_INITIALIZED)
    *count = number("devices", 2);
    return SUCCESS;
}
int cuDeviceGet(int* device, int ordinal) {
    NEED(initialised, NOT_INITIALIZED)
    NEED(ordinal >= 0 && ordinal < 2, INVALID_DEVICE)
    *device = ordinal;
    return SUCCESS;
}
int cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, (size_t)length, "stand-in %d", device);
    return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = MEMORY;
    return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
    case 16:
        *value = 2;
        return SUCCESS;
    case 75:
        *value = number("capability", 80) / 10;
        return SUCCESS;
    case 76:
        *value = number("capability", 80) % 10;
        return SUCCESS;
    case 97:
        *value = 163 * 1024;
        return SUCCESS;
    default:
        return INVALID_VALUE;
    }
}
int cuDeviceCanAccessPeer(int* can, int device, int other) {
    *can = device != other && setting("no-peers").empty();
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(Context** context, int device) {
    std::lock_guard<std::mutex> guard(lock);
    *context = &contexts[device];
    (*context)->held++;
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    std::lock_guard<std::mutex> guard(lock);
    NEED(contexts[device].held > 0, INVALID_CONTEXT)
    contexts[device].held--;
    return SUCCESS;
}
int cuCtxSetCurrent(Context* context) {
    current = context;
    return SUCCESS;
}
int cuCtxSynchronize() {
    ENTER
    NOT_IN_GROUP
    NOT_CAPTURED(of_any, nullptr)
    return SUCCESS;
}
int cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
    ENTER
    NEED(peer != current && flags == 0, INVALID_VALUE)
    return current->peers.insert(peer->device).second ? SUCCESS : PEER_ALREADY;
}

int cuMemGetInfo_v2(size_t* free, size_t* all) {
    ENTER
    *all = MEMORY;
    *free = MEMORY - current->used;
    return SUCCESS;
}
int cuMemAlloc_v2(uint64_t* at, size_t bytes) {
    ENTER
    NOT_IN_GROUP
    NOT_CAPTURED(of_thread, nullptr)
    NEED(bytes > 0, INVALID_VALUE)
    NEED(bytes <= MEMORY - current->used, OUT_OF_MEMORY)
    *at = (uint64_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memory[*at] = {bytes, current};
    current->used += bytes;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t at) {
    ENTER
    NOT_IN_GROUP
    const auto found = memory.find(at);
    NEED(found != memory.end() && found->second.second == current, INVALID_VALUE)
    current->used -= found->second.first;
    memory.erase(found);
    free((void*)at);
    return SUCCESS;
}
int cuMemHostAlloc(void** at, size_t bytes, unsigned flags) {
    ENTER
    NOT_IN_GROUP
    NEED(bytes > 0 && flags == 3, INVALID_VALUE)
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*at, 0xff, bytes);
    host.insert(*at);
    return SUCCESS;
}
int cuMemFreeHost(void* at) {
    ENTER
    NOT_IN_GROUP
    NEED(host.erase(at) == 1, INVALID_VALUE)
    free(at);
    return SUCCESS;
}
int cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) {
    ENTER
    NOT_IN_GROUP
    NEED((flags & 8) == 0 || setting("refuse-read-only").empty(), NOT_SUPPORTED)
    NEED(bytes > 0 && (flags & 7) == 3 && registered.insert(at).second, INVALID_VALUE)
    return SUCCESS;
}
int cuMemHostUnregister(void* at) {
    ENTER
    NOT_IN_GROUP
    return registered.erase(at) == 1 ? SUCCESS : INVALID_VALUE;
}
int cuMemHostGetDevicePointer_v2(uint64_t* address, void* at, unsigned flags) {
    ENTER
    NEED(flags == 0 && (host.count(at) != 0 || registered.count(at) != 0), INVALID_VALUE)
    *address = (uint64_t)at;
    return SUCCESS;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    ENTER
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
    ENTER
    NEED(flags == 1 && priority <= 0 && priority >= -5, INVALID_VALUE)
    *stream = malloc(1);
    streams.insert(*stream);
    return SUCCESS;
}
int cuStreamDestroy_v2(void* stream) {
    ENTER
    NEED(streams.erase(stream) == 1, INVALID_HANDLE)
    return SUCCESS;
}
int cuStreamSynchronize(void* stream) {
    ENTER
    NOT_CAPTURED(of_stream, stream)
    return is_stream(stream) ? SUCCESS : INVALID_HANDLE;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
    ENTER
    return is_stream(stream) && events.count(event) != 0 && flags == 0 ? SUCCESS : INVALID_HANDLE;
}
int cuEventCreate(void** event, unsigned flags) {
    ENTER
    NEED(flags == 0 || flags == 2, INVALID_VALUE)
    *event = malloc(1);
    events[*event] = {};
    return SUCCESS;
}
int cuEventDestroy_v2(void* event) {
    ENTER
    NEED(events.erase(event) == 1, INVALID_HANDLE)
    return SUCCESS;
}
int cuEventQuery(void* event) {
    ENTER
    return events.count(event) != 0 ? SUCCESS : INVALID_HANDLE;
}
int cuEventRecord(void* event, void* stream) {
    ENTER
    NOT_CAPTURED(of_stream, stream)
    NEED(is_stream(stream) && events.count(event) != 0, INVALID_HANDLE)
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    events[event] = {true, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec};
    return SUCCESS;
}
int cuEventSynchronize(void* event) {
    ENTER
    return events.count(event) != 0 ? SUCCESS : INVALID_HANDLE;
}
int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
    ENTER
    NEED(events.count(from) != 0 && events[from].recorded, INVALID_HANDLE)
    NEED(events.count(to) != 0 && events[to].recorded, INVALID_HANDLE)
    *milliseconds = (float)(1e3 * (events[to].seconds - events[from].seconds));
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    ENTER
    NEED(is_stream(stream), INVALID_HANDLE)
    // a graph would read the host's memory again in each launch
    NOT_CAPTURED(of_stream, stream)
    memcpy((void*)to, from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    return cuMemcpyHtoDAsync_v2((uint64_t)to, (const void*)from, bytes, stream);
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    {
        ENTER
        NEED(is_stream(stream), INVALID_HANDLE)
        if (keep(stream, [=] { return memcpy((void*)to, (const void*)from, bytes), SUCCESS; })) {
            return SUCCESS;
        }
    }
    return cuMemcpyHtoDAsync_v2(to, (const void*)from, bytes, stream);
}
int cuMemsetD32Async(uint64_t at, unsigned word, size_t words, void* stream) {
    ENTER
    NEED(is_stream(stream), INVALID_HANDLE)
    const auto set = [=] {
        for (size_t i = 0; i < words; i++) {
            memcpy((char*)at + 4 * i, &word, 4);
        }
        return SUCCESS;
    };
    return keep(stream, set) ? SUCCESS : set();
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
    ENTER
    NOT_IN_GROUP
    if (!setting("broken-jit").empty()) {
        for (unsigned i = 0; i + 1 < count; i++) {
            // the error buffer, followed by its size
            if (options[i] == 5 && options[i + 1] == 6) {
                snprintf((char*)values[i], (size_t)values[i + 1], "ptxas says no");
            }
        }
        return INVALID_PTX;
    }
    std::string* text = new std::string((const char*)image);
    modules.insert(text);
    *module = text;
    return text->find(".version") == std::string::npos ? INVALID_PTX : SUCCESS;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    ENTER
    NEED(modules.count((std::string*)module) != 0, INVALID_HANDLE)
    const bool entry = ((std::string*)module)->find(std::string(".entry ") + name + "(") != std::string::npos;
    const shim_kernel* kernel = shim_find(name);
    NEED(entry && kernel != nullptr, NOT_FOUND)
    *function = (void*)kernel;
    functions.insert({*function, {kernel}});
    return SUCCESS;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
    ENTER
    NEED(functions.count(function) != 0, INVALID_HANDLE)
    NEED(attribute == 8, INVALID_VALUE)
    *value = (int)functions[function].allowed;
    return SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    ENTER
    NEED(functions.count(function) != 0, INVALID_HANDLE)
    NEED(attribute == 8 && value <= 163 * 1024, INVALID_VALUE)
    functions[function].allowed = (unsigned)value;
    return SUCCESS;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
    const shim_kernel* kernel = nullptr;
    {
        ENTER
        NEED(functions.count(function) != 0 && is_stream(stream), INVALID_HANDLE)
        NEED(shared <= functions[function].allowed && extra == nullptr && bx * by * bz <= 1024, INVALID_VALUE)
        NEED(gx * gy * gz != 0 && bx * by * bz != 0, INVALID_VALUE)
        kernel = functions[function].kernel;
        if (captures.count(stream) != 0) {
            std::vector<uint64_t> values(kernel->parameters);
            kernel->keep(arguments, values.data());
            keep(stream, [=]() mutable {
                std::vector<void*> pointers;
                for (uint64_t& value : values) {
                    pointers.push_back(&value);
                }
                return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, pointers.data(), nullptr);
            });
            return SUCCESS;
        }
    }
    const uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    Failure failure = {};
    if (!shim_launch(kernel, grid, block, shared, arguments, 0, 0, 0, &failure)) {
        fprintf(stderr, "%s: %s\n", kernel->name, failure.message);
        return LAUNCH_FAILED;
    }
    return SUCCESS;
}

int cuStreamBeginCapture_v2(void* stream, int mode) {
    ENTER
    NEED(is_stream(stream) && captures.count(stream) == 0, INVALID_HANDLE)
    // other threads continue
    NEED(mode == 1, INVALID_VALUE)
    NEED(setting("no-graphs").empty(), NOT_SUPPORTED)
    captures[stream] = {std::this_thread::get_id(), {}};
    return SUCCESS;
}
int cuStreamEndCapture(void* stream, Work** graph) {
    ENTER
    const auto found = captures.find(stream);
    NEED(found != captures.end() && found->second.by == std::this_thread::get_id(), INVALID_VALUE)
    const Capture capture = std::move(found->second);
    captures.erase(found);
    *graph = nullptr;
    NEED(!capture.spoilt, CAPTURE_INVALIDATED)
    graphs.insert(*graph = new Work(capture.work));
    return SUCCESS;
}
int cuGraphInstantiateWithFlags(Work** to, Work* graph, unsigned long long flags) {
    ENTER
    NEED(graphs.count(graph) != 0 && flags == 0, INVALID_VALUE)
    ready.insert(*to = new Work(*graph));
    return SUCCESS;
}
int cuGraphLaunch(Work* graph, void* stream) {
    {
        ENTER
        NEED(is_stream(stream) && ready.count(graph) != 0, INVALID_HANDLE)
        NOT_CAPTURED(of_stream, stream)
    }
    for (const auto& one : *graph) {
        if (const int status = one()) {
            return status;
        }
    }
    return SUCCESS;
}
int cuGraphDestroy(Work* graph) {
    ENTER
    NEED(graphs.erase(graph) == 1, INVALID_VALUE)
    delete graph;
    return SUCCESS;
}
int cuGraphExecDestroy(Work* graph) {
    ENTER
    NEED(ready.erase(graph) == 1, INVALID_VALUE)
    delete graph;
    return SUCCESS;
}

// For NCCL's stand-in: set while it starts kernels that wait for each other.
void stand_in_group(bool begins) {
    std::lock_guard<std::mutex> guard(lock);
    grouping = begins;
}

// For the other stand-ins: returns true if the stream is being captured, and stores this work of
// theirs.
bool stand_in_keep(void* stream, std::function<int()>* work) {
    std::lock_guard<std::mutex> guard(lock);
    return keep(stream, *work);
}

}  // extern "C"
