// Stand-in for NCCL, for tests of its callers: sums over the ranks of one process, in the order of
// ranks, when a group ends. It is as strict as the library should be: a collective without all
// ranks would hang, and is an error here. When a group ends, it notifies the driver's stand-in that
// kernels which wait for each other are being started.
//
// GRAPHMILL_STAND_IN may hold `nccl-fails=CALL`, the name of a call without `nccl`.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

enum Status { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };

struct Communicator {
    int rank;
    int ranks;
};
struct Call {
    float* values;
    size_t count;
    const Communicator* of;
    void* stream;
};

bool grouped = false;
std::vector<Call> calls;

bool fails(const char* call) {
    const char* words = getenv("GRAPHMILL_STAND_IN");
    return words != nullptr && strstr(words, (std::string("nccl-fails=") + call).c_str()) != nullptr;
}

// Notifies the driver's stand-in that kernels which wait for each other are being started, which
// takes a while.
void tell_driver(bool begins) {
    using Tell = void (*)(bool);
    static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    static const Tell tell = driver == nullptr ? nullptr : (Tell)dlsym(driver, "stand_in_group");
    if (tell != nullptr) {
        tell(begins);
    }
    if (begins) {
        usleep(2000);
    }
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
    *version = 22705;
    return SUCCESS;
}
const char* ncclGetErrorString(int status) {
    return status == INVALID_USAGE ? "invalid usage" : status == INVALID_ARGUMENT ? "invalid argument" : nullptr;
}
int ncclCommInitAll(Communicator** to, int count, const int* devices) {
    if (count < 1 || fails("CommInitAll")) {
        return INVALID_USAGE;
    }
    for (int rank = 0; rank < count; rank++) {
        for (int other = 0; other < rank; other++) {
            if (devices[other] == devices[rank]) {
                return INVALID_USAGE;
            }
        }
    }
    for (int rank = 0; rank < count; rank++) {
        to[rank] = new Communicator{rank, count};
    }
    return SUCCESS;
}
int ncclCommDestroy(Communicator* communicator) {
    delete communicator;
    return SUCCESS;
}
int ncclCommAbort(Communicator* communicator) {
    return ncclCommDestroy(communicator);
}
int ncclGroupStart() {
    if (grouped) {
        return INVALID_USAGE;
    }
    grouped = true;
    return SUCCESS;
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, Communicator* of, void* stream) {
    if (!grouped || stream == nullptr || fails("AllReduce")) {
        return INVALID_USAGE;
    }
    // f32 and sums, in place
    if (type != 7 || operation != 0 || from != to) {
        return INVALID_ARGUMENT;
    }
    calls.push_back({(float*)to, count, of, stream});
    return SUCCESS;
}
int ncclGroupEnd() {
    const std::vector<Call> all = std::move(calls);
    calls.clear();
    if (!grouped || fails("GroupEnd")) {
        return INVALID_USAGE;
    }
    grouped = false;
    tell_driver(true);
    tell_driver(false);
    for (size_t first = 0; first < all.size();) {
        const size_t ranks = (size_t)all[first].of->ranks;
        if (all.size() - first < ranks) {
            return INVALID_USAGE;
        }
        for (size_t rank = 0; rank < ranks; rank++) {
            if (all[first + rank].of->rank != (int)rank || all[first + rank].count != all[first].count) {
                return INVALID_USAGE;
            }
        }
        for (size_t i = 0; i < all[first].count; i++) {
            float sum = all[first].values[i];
            for (size_t rank = 1; rank < ranks; rank++) {
                sum += all[first + rank].values[i];
            }
            for (size_t rank = 0; rank < ranks; rank++) {
                all[first + rank].values[i] = sum;
            }
        }
        first += ranks;
    }
    return SUCCESS;
}

}  // extern "C"
