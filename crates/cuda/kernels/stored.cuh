// Feature rows, each copied by a few lanes: 16, 4 or 2 bytes per lane, whichever divides rows and
// addresses, so that a warp requests whole lines of 128 bytes.
#pragma once

#define ROWS_F32 0
#define ROWS_F16 1

// Value of 16 stored bits.
__device__ inline float rows_wide(uint32_t bits, uint32_t kind) {
    return kind == ROWS_F16 ? from_half((unsigned short)bits) : from_bf16((unsigned short)bits);
}

// Two values of 16 stored bits each.
__device__ inline float2 rows_pair(uint32_t word, uint32_t kind) {
    return make_float2(rows_wide(word & 0xffffu, kind), rows_wide(word >> 16, kind));
}

// Writes unit `at` of a row as f32.
__device__ inline void rows_put(uint4 word, uint64_t at, float* to, uint32_t kind) {
    if (kind == ROWS_F32) {
        ((uint4*)to)[at] = word;
        return;
    }
    const float2 a = rows_pair(word.x, kind), b = rows_pair(word.y, kind);
    const float2 c = rows_pair(word.z, kind), d = rows_pair(word.w, kind);
    ((float4*)to)[2 * at] = make_float4(a.x, a.y, b.x, b.y);
    ((float4*)to)[2 * at + 1] = make_float4(c.x, c.y, d.x, d.y);
}

__device__ inline void rows_put(uint32_t word, uint64_t at, float* to, uint32_t kind) {
    if (kind == ROWS_F32) {
        ((uint32_t*)to)[at] = word;
    } else {
        ((float2*)to)[at] = rows_pair(word, kind);
    }
}

__device__ inline void rows_put(unsigned short word, uint64_t at, float* to, uint32_t kind) {
    to[at] = rows_wide(word, kind);
}

// Copies the `units` of a row: as f32 to `to`, and unchanged to `keep`; either may be null. `group`
// lanes take part, with four concurrent reads per lane. Reads begin at a line: if the row begins
// within one, the first lanes do not read from it.
template <typename Unit>
__device__ inline void rows_copy_units(const Unit* from, uint64_t units, uint32_t lane, uint32_t group, float* to, Unit* keep,
                                       uint32_t kind) {
    const uint64_t shift = group < 32 ? 0 : (uint64_t)from % 128 / sizeof(Unit);
    for (uint64_t first = lane; first < units + shift; first += 4 * group) {
        Unit held[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint64_t at = first + i * group;
            if (at >= shift && at < units + shift) {
                held[i] = __ldg(from + (at - shift));
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint64_t at = first + i * group;
            if (at >= shift && at < units + shift) {
                if (to != 0) {
                    rows_put(held[i], at - shift, to, kind);
                }
                if (keep != 0) {
                    keep[at - shift] = held[i];
                }
            }
        }
    }
}

// Copies up to 32 rows, whose addresses (0: none) are in the warp's lanes; row i goes to
// `to + i * dim`, and to lane i's `keep` if that is not null. If a row is one read of a few lanes,
// each lane reads four rows concurrently. All lanes must call it.
template <typename Unit>
__device__ inline void rows_copy_warp(uint64_t from, uint64_t keep, uint64_t units, uint32_t group, float* to, uint64_t dim,
                                      uint32_t kind) {
    const uint32_t lane = threadIdx.x % 32;
    if (units > group) {
        for (uint32_t i = 0; i < 32; i++) {
            const Unit* row = (const Unit*)__shfl_sync(ALL_LANES, from, i);
            Unit* kept = (Unit*)__shfl_sync(ALL_LANES, keep, i);
            if (row != 0) {
                rows_copy_units(row, units, lane, 32, to == 0 ? to : to + i * dim, kept, kind);
            }
        }
        return;
    }
    const uint32_t together = 32 / group, own = lane % group;
    for (uint32_t first = lane / group; first < 32; first += 4 * together) {
        const Unit* row[4];
        Unit* kept[4];
        Unit held[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = first + i * together;
            row[i] = (const Unit*)__shfl_sync(ALL_LANES, from, at % 32);
            kept[i] = (Unit*)__shfl_sync(ALL_LANES, keep, at % 32);
            if (at >= 32 || own >= units) {
                row[i] = 0;
            }
            if (row[i] != 0) {
                held[i] = __ldg(row[i] + own);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (row[i] != 0) {
                if (to != 0) {
                    rows_put(held[i], own, to + (first + i * together) * dim, kind);
                }
                if (kept[i] != 0) {
                    kept[i][own] = held[i];
                }
            }
        }
    }
}

// As above, by the unit's bytes.
__device__ inline void rows_copy(uint64_t from, uint64_t keep, uint64_t row_bytes, uint32_t unit, uint32_t group, float* to,
                                 uint64_t dim, uint32_t kind) {
    if (unit == 16) {
        rows_copy_warp<uint4>(from, keep, row_bytes / 16, group, to, dim, kind);
    } else if (unit == 4) {
        rows_copy_warp<uint32_t>(from, keep, row_bytes / 4, group, to, dim, kind);
    } else {
        rows_copy_warp<unsigned short>(from, keep, row_bytes / 2, group, to, dim, kind);
    }
}
