// Bodies of the evaluator's loops; included by one translation unit per instruction set, which
// defines KVCHECK_EVALUATE_TABLE (the name of its table), KVCHECK_EVALUATE_NAME and
// KVCHECK_VECTOR_BYTES (the width of its registers). Every loop over keys or channels carries
// independent elements, so that any vector width gives the same bits.

#include <cstdint>

#include "reference/attention/evaluate_kernels.h"
#include "reference/numerics/double_double-inl.h"
#include "reference/numerics/exp-inl.h"

namespace kvcheck {
namespace {

constexpr int kTile = 16;  // kKeyTile of head_data.h; checked in evaluate.cc
constexpr int kChannels = 16;

// The compiler keeps explicit vectors in registers where it would keep small arrays in memory.
typedef double Vec __attribute__((vector_size(KVCHECK_VECTOR_BYTES)));
typedef long long VecBits __attribute__((vector_size(KVCHECK_VECTOR_BYTES)));
constexpr int64_t kVec = KVCHECK_VECTOR_BYTES / 8;  // wide, since offsets are multiples of it
static_assert(kTile % kVec == 0);
// Dependent additions that run at once: they hide the latency of one, and leave registers for the
// operands.
constexpr int kChains = 8;

KVCHECK_INLINE Vec Load(const double* from) {
  Vec v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
KVCHECK_INLINE void Store(Vec v, double* to) { __builtin_memcpy(to, &v, sizeof(v)); }
KVCHECK_INLINE Vec Magnitude(Vec x) {
  return (Vec)((VecBits)x & (VecBits{} + 0x7fffffffffffffffLL));
}
KVCHECK_INLINE Vec Larger(Vec x, Vec y) { return x < y ? y : x; }
KVCHECK_INLINE double Magnitude(double x) { return __builtin_fabs(x); }
KVCHECK_INLINE double Larger(double x, double y) { return x < y ? y : x; }

template <bool kHasMagnitude>
void ScoresLoop(const double* q, const double* k, const double* k_magnitude, int64_t d,
                int64_t tiles, double* dot, double* magnitude) {
  constexpr int kVectors = kTile / kVec;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    Vec sum[kVectors] = {};
    Vec size[kVectors] = {};
    const double* rows = k + tile * d * kTile;
    const double* sizes = kHasMagnitude ? k_magnitude + tile * d * kTile : rows;
    for (int64_t i = 0; i < d; ++i) {
      const double qi = q[i];
      const double qa = Magnitude(qi);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const Vec row = Load(rows + i * kTile + j * kVec);
        sum[j] += qi * row;
        size[j] += qa * (kHasMagnitude ? Load(sizes + i * kTile + j * kVec) : Magnitude(row));
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      Store(sum[j], dot + tile * kTile + j * kVec);
      Store(size[j], magnitude + tile * kTile + j * kVec);
    }
  }
}

void Scores(const double* q, const double* k, const double* k_magnitude, int64_t d, int64_t tiles,
            double* dot, double* magnitude) {
  if (k_magnitude == nullptr) {
    ScoresLoop<false>(q, k, nullptr, d, tiles, dot, magnitude);
  } else {
    ScoresLoop<true>(q, k, k_magnitude, d, tiles, dot, magnitude);
  }
}

template <bool kHasLo, bool kHasMagnitude>
void ScoresDDLoop(const double* q, const double* k, const double* k_lo, const double* k_magnitude,
                  int64_t d, int64_t tiles, double* dot_hi, double* dot_lo, double* magnitude) {
  constexpr int kHalf = 8;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int half = 0; half < kTile; half += kHalf) {
      double hi[kHalf] = {};
      double lo[kHalf] = {};
      double size[kHalf] = {};
      const int64_t begin = tile * d * kTile + half;
      for (int64_t i = 0; i < d; ++i) {
        const double qi = q[i];
        const double qa = Magnitude(qi);
        const int64_t offset = begin + i * kTile;
        for (int j = 0; j < kHalf; ++j) {
          const DoubleDouble sum = AddProduct({hi[j], lo[j]}, qi, k[offset + j]);
          hi[j] = sum.hi;
          lo[j] = sum.lo;
          if (kHasLo) lo[j] += qi * k_lo[offset + j];
          size[j] += qa * (kHasMagnitude ? k_magnitude[offset + j] : Magnitude(k[offset + j]));
        }
      }
      for (int j = 0; j < kHalf; ++j) {
        const DoubleDouble sum = Normalize({hi[j], lo[j]});
        dot_hi[tile * kTile + half + j] = sum.hi;
        dot_lo[tile * kTile + half + j] = sum.lo;
        magnitude[tile * kTile + half + j] = size[j];
      }
    }
  }
}

void ScoresDD(const double* q, const double* k, const double* k_lo, const double* k_magnitude,
              int64_t d, int64_t tiles, double* dot_hi, double* dot_lo, double* magnitude) {
  if (k_lo == nullptr && k_magnitude == nullptr) {
    ScoresDDLoop<false, false>(q, k, k_lo, k_magnitude, d, tiles, dot_hi, dot_lo, magnitude);
  } else if (k_lo == nullptr) {
    ScoresDDLoop<false, true>(q, k, k_lo, k_magnitude, d, tiles, dot_hi, dot_lo, magnitude);
  } else if (k_magnitude == nullptr) {
    ScoresDDLoop<true, false>(q, k, k_lo, k_magnitude, d, tiles, dot_hi, dot_lo, magnitude);
  } else {
    ScoresDDLoop<true, true>(q, k, k_lo, k_magnitude, d, tiles, dot_hi, dot_lo, magnitude);
  }
}

void ExpArray(const double* x, int64_t n, double* out) {
  for (int64_t j = 0; j < n; ++j) out[j] = inl::ExpDouble(x[j]);
}

void ExpDDArray(const double* x_hi, const double* x_lo, int64_t n, double* out_hi, double* out_lo) {
  for (int64_t j = 0; j < n; ++j) {
    const DoubleDouble value = inl::ExpDD({x_hi[j], x_lo[j]});
    out_hi[j] = value.hi;
    out_lo[j] = value.lo;
  }
}

void DivideDD(const double* e_hi, const double* e_lo, int64_t n, double l_hi, double l_lo,
              double* p_hi, double* p_lo) {
  for (int64_t j = 0; j < n; ++j) {
    const DoubleDouble value = DoubleDouble{e_hi[j], e_lo[j]} / DoubleDouble{l_hi, l_lo};
    p_hi[j] = value.hi;
    p_lo[j] = value.lo;
  }
}

// Calls body(first channel, width) with a constant width where whole tiles remain.
template <typename Body>
inline void OverChannels(int64_t dv, const Body& body) {
  int64_t c = 0;
  for (; c + kChannels <= dv; c += kChannels) body(c, std::integral_constant<int, kChannels>());
  for (; c < dv; ++c) body(c, std::integral_constant<int, 1>());
}

// One run of channels, held in registers: kVectors of T, which is Vec, or double for the channels
// that remain. Every channel is a chain of dependent additions, so several advance at once.
template <typename T, int kVectors>
KVCHECK_INLINE void WeightedSumRun(const int32_t* keys, int64_t n, const double* p, const double* v,
                                   int64_t dv, int64_t first, double* o) {
  constexpr int kLength = sizeof(T) / sizeof(double);
  T sum[kVectors] = {};
  for (int64_t j = 0; j < n; ++j) {
    const double* row = v + int64_t{keys[j]} * dv + first;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      T values;
      __builtin_memcpy(&values, row + i * kLength, sizeof(T));
      sum[i] += p[j] * values;
    }
  }
  __builtin_memcpy(o + first, sum, sizeof(sum));
}

void WeightedSumLoop(const int32_t* keys, int64_t n, const double* p, const double* v, int64_t dv,
                     double* o) {
  int64_t first = 0;
  for (; first + kChains * kVec <= dv; first += kChains * kVec) {
    WeightedSumRun<Vec, kChains>(keys, n, p, v, dv, first, o);
  }
  for (; first + kVec <= dv; first += kVec) {
    WeightedSumRun<Vec, 1>(keys, n, p, v, dv, first, o);
  }
  for (; first < dv; ++first) WeightedSumRun<double, 1>(keys, n, p, v, dv, first, o);
}

template <bool kHasLo>
void WeightedSumDDImpl(const int32_t* keys, int64_t n, const double* p_hi, const double* p_lo,
                       const double* v, const double* v_lo, int64_t dv, double* o_hi,
                       double* o_lo) {
  OverChannels(dv, [&](int64_t first, auto width) {
    constexpr int kWidth = decltype(width)::value;
    double hi[kWidth] = {};
    double lo[kWidth] = {};
    for (int64_t j = 0; j < n; ++j) {
      const DoubleDouble weight = {p_hi[j], p_lo[j]};
      const int64_t offset = int64_t{keys[j]} * dv + first;
      for (int c = 0; c < kWidth; ++c) {
        const DoubleDouble value = TwoSum(v[offset + c], kHasLo ? v_lo[offset + c] : 0.0);
        const DoubleDouble sum = DoubleDouble{hi[c], lo[c]} + weight * value;
        hi[c] = sum.hi;
        lo[c] = sum.lo;
      }
    }
    for (int c = 0; c < kWidth; ++c) {
      o_hi[first + c] = hi[c];
      o_lo[first + c] = lo[c];
    }
  });
}

void WeightedSumDD(const int32_t* keys, int64_t n, const double* p_hi, const double* p_lo,
                   const double* v, const double* v_lo, int64_t dv, double* o_hi, double* o_lo) {
  if (v_lo == nullptr) {
    WeightedSumDDImpl<false>(keys, n, p_hi, p_lo, v, v_lo, dv, o_hi, o_lo);
  } else {
    WeightedSumDDImpl<true>(keys, n, p_hi, p_lo, v, v_lo, dv, o_hi, o_lo);
  }
}

// Sums of one run of channels, held in registers: T is Vec, or double for the channels that remain.
template <bool kHasY, typename T>
KVCHECK_INLINE void SumChannelRun(const int32_t* keys, int64_t n, const double* p, const double* c,
                                  const double* x, const double* y, const double* v, int64_t dv,
                                  const double* o, int64_t first, const ChannelSumArrays& out) {
  T center, mass = {}, sum_c = {}, sum_x = {}, sum_y = {}, largest = {}, spread = {};
  __builtin_memcpy(&center, o + first, sizeof(T));
  for (int64_t j = 0; j < n; ++j) {
    T row;
    __builtin_memcpy(&row, v + int64_t{keys[j]} * dv + first, sizeof(T));
    const T size = Magnitude(row);
    const T gap = Magnitude(row - center);
    mass += p[j] * size;
    sum_c += c[j] * gap;
    sum_x += x[j] * size;
    if (kHasY) sum_y += y[j] * size;
    largest = Larger(largest, size);
    spread = Larger(spread, gap);
  }
  __builtin_memcpy(out.mass + first, &mass, sizeof(T));
  __builtin_memcpy(out.c + first, &sum_c, sizeof(T));
  __builtin_memcpy(out.x + first, &sum_x, sizeof(T));
  __builtin_memcpy(out.y + first, &sum_y, sizeof(T));
  __builtin_memcpy(out.largest + first, &largest, sizeof(T));
  __builtin_memcpy(out.spread + first, &spread, sizeof(T));
}

template <bool kHasY>
void ChannelSumsLoop(const int32_t* keys, int64_t n, const double* p, const double* c,
                     const double* x, const double* y, const double* v, int64_t dv, const double* o,
                     const ChannelSumArrays& out) {
  int64_t first = 0;
  for (; first + kVec <= dv; first += kVec) {
    SumChannelRun<kHasY, Vec>(keys, n, p, c, x, y, v, dv, o, first, out);
  }
  for (; first < dv; ++first) {
    SumChannelRun<kHasY, double>(keys, n, p, c, x, y, v, dv, o, first, out);
  }
}

// The rarer sums: codes dequantized in the kernel, and the codec's error against originals.
void ChannelParts(const int32_t* keys, int64_t n, const double* x, const double* y,
                  const double* magnitude, bool factored, const double* codec_error, int64_t dv,
                  const ChannelSumArrays& out) {
  OverChannels(dv, [&](int64_t first, auto width) {
    constexpr int kWidth = decltype(width)::value;
    double parts[kWidth] = {}, parts_y[kWidth] = {}, codec[kWidth] = {};
    for (int64_t j = 0; j < n; ++j) {
      const int64_t offset = int64_t{keys[j]} * dv + first;
      for (int i = 0; i < kWidth; ++i) {
        if (magnitude != nullptr) {
          parts[i] += x[j] * magnitude[offset + i];
          if (y != nullptr) parts_y[i] += y[j] * magnitude[offset + i];
        }
        if (codec_error != nullptr) codec[i] += x[j] * codec_error[offset + i];
      }
    }
    for (int i = 0; i < kWidth; ++i) {
      out.parts[first + i] = parts[i];
      out.codec[first + i] = codec[i];
      if (factored && magnitude != nullptr) {
        out.x[first + i] = parts[i];
        out.y[first + i] = parts_y[i];
      }
    }
  });
}

void ChannelSumsKernel(const int32_t* keys, int64_t n, const double* p, const double* c,
                       const double* x, const double* y, const double* v, const double* magnitude,
                       bool factored, const double* codec_error, int64_t dv, const double* o,
                       const ChannelSumArrays& out) {
  if (y == nullptr) {
    ChannelSumsLoop<false>(keys, n, p, c, x, y, v, dv, o, out);
  } else {
    ChannelSumsLoop<true>(keys, n, p, c, x, y, v, dv, o, out);
  }
  if (magnitude != nullptr || codec_error != nullptr) {
    ChannelParts(keys, n, x, y, magnitude, factored, codec_error, dv, out);
  }
}

// Products of kKeys rows at once.
template <int kKeys>
KVCHECK_INLINE void ProjectRows(const int32_t* keys, const double* w, const double* v, int64_t dv,
                                double* out) {
  constexpr int kVectors = kProjectLanes / kVec;
  const double* rows[kKeys];
  for (int key = 0; key < kKeys; ++key) rows[key] = v + int64_t{keys[key]} * dv;
  Vec sum[kKeys * kVectors] = {};
  for (int64_t c = 0; c < dv; ++c) {
#pragma GCC unroll 8
    for (int i = 0; i < kKeys * kVectors; ++i) {
      sum[i] += rows[i / kVectors][c] * Load(w + c * kProjectLanes + i % kVectors * kVec);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kKeys * kVectors; ++i) Store(sum[i], out + i * kVec);
}

void Project(const int32_t* keys, int64_t n, const double* w, const double* v, int64_t dv,
             double* out) {
  constexpr int kKeys = kChains * kVec / kProjectLanes;
  int64_t j = 0;
  for (; j + kKeys <= n; j += kKeys) {
    ProjectRows<kKeys>(keys + j, w, v, dv, out + j * kProjectLanes);
  }
  for (; j < n; ++j) ProjectRows<1>(keys + j, w, v, dv, out + j * kProjectLanes);
}

}  // namespace

extern const EvaluateKernels KVCHECK_EVALUATE_TABLE = {
    KVCHECK_EVALUATE_NAME, Scores,        ScoresDD,          ExpArray, ExpDDArray, DivideDD,
    WeightedSumLoop,       WeightedSumDD, ChannelSumsKernel, Project};

}  // namespace kvcheck
