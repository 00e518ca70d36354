// Feature rows from wherever they are: this device's memory, its peers' or the host's, read in place by one kernel.
#include "common.cuh"
#include "stored.cuh"

// Where a row is that no device holds.
#define COLD 0xffffffffu

// Copies rows of the host, as they are, to the device: row i is that of ids[i]. `group` lanes a row.
extern "C" __global__ void tier_load(const uint32_t* ids, uint64_t count, const unsigned char* host, uint64_t row_bytes,
                                     uint32_t unit, uint32_t group, unsigned char* rows) {
    const uint32_t lane = threadIdx.x % group;
    const uint64_t groups = (uint64_t)gridDim.x * blockDim.x / group;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / group; i < count; i += groups) {
        rows_copy(host + ids[i] * row_bytes, row_bytes, unit, lane, group, (float*)0, rows + i * row_bytes, ROWS_F32);
    }
}

// out (count x dim): the rows of `ids`. places[v]: where row v is, the device's number and `devices` times its row there, or COLD; without
// `places` all are on this device in their order. shards[d]: the rows of device d. Adds to found[0..3] the rows of this device, of its peers
// and of the host.
extern "C" __global__ void tier_gather(const uint32_t* ids, uint64_t count, const uint32_t* places, const uint64_t* shards,
                                       uint32_t devices, uint32_t own, const unsigned char* host, uint64_t row_bytes,
                                       uint32_t unit, uint32_t group, uint32_t kind, uint64_t dim, float* out, uint64_t* found) {
    __shared__ uint32_t counts[3];
    if (threadIdx.x < 3) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    const uint32_t lane = threadIdx.x % group;
    const uint64_t groups = (uint64_t)gridDim.x * blockDim.x / group;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / group; i < count; i += groups) {
        const uint32_t v = ids[i];
        const uint32_t place = places != 0 ? __ldg(places + v) : 0;
        const unsigned char* from;
        uint32_t tier = 0;
        if (places == 0) {
            from = (const unsigned char*)__ldg(shards + own) + v * row_bytes;
        } else if (place == COLD) {
            from = host + v * row_bytes;
            tier = 2;
        } else {
            const uint32_t device = place % devices;
            from = (const unsigned char*)__ldg(shards + device) + place / devices * row_bytes;
            tier = device == own ? 0 : 1;
        }
        if (lane == 0) {
            atomicAdd(counts + tier, 1u);
        }
        rows_copy(from, row_bytes, unit, lane, group, out + i * dim, (unsigned char*)0, kind);
    }
    __syncthreads();
    if (threadIdx.x < 3 && counts[threadIdx.x] != 0) {
        atomicAdd(found + threadIdx.x, (uint64_t)counts[threadIdx.x]);
    }
}
