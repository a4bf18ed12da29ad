// Bodies of the evaluator's loops; included by one translation unit per instruction set, which
// defines KVCHECK_EVALUATE_TABLE (the name of its table), KVCHECK_EVALUATE_NAME and
// KVCHECK_VECTOR_BYTES (the width of its registers; evaluate_vectors-inl.h). Every loop over keys
// or channels carries independent elements, so that any vector width gives the same bits.

#include <cstdint>

#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/evaluate_vectors-inl.h"
#include "reference/numerics/double_double-inl.h"
#include "reference/numerics/exp-inl.h"

namespace kvcheck {
namespace {

constexpr int kTile = 16;  // kKeyTile of head_data.h; checked in evaluate.cc
constexpr int kChannels = 16;
static_assert(kTile % kVec == 0);
// Dependent additions that run at once: they hide the latency of one, and leave registers for the
// operands.
constexpr int kChains = 8;
// Vectors at once in double-double, where the operations of one leave less room.
constexpr int kPairChains = 4;
// Vectors of channels at once where each has half a dozen sums: a cache line of a row, or more.
constexpr int kSumChains = 2;

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
  constexpr int kVectors = kPairChains * kVec < kTile ? kPairChains : kTile / kVec;
  constexpr int kRun = kVectors * kVec;
  static_assert(kTile % kRun == 0);
  for (int64_t run = 0; run < tiles * (kTile / kRun); ++run) {
    Pair<Vec> sum[kVectors] = {};
    Vec size[kVectors] = {};
    const int64_t begin = run * kRun / kTile * d * kTile + run * kRun % kTile;
    for (int64_t i = 0; i < d; ++i) {
      const Vec qi = InEveryLane<Vec>(q[i]);
      const Vec qa = Magnitude(qi);
      const int64_t offset = begin + i * kTile;
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const int64_t at = offset + j * kVec;
        const Vec row = Load(k + at);
        sum[j] = PlusProduct(sum[j], qi, row);
        if (kHasLo) sum[j].lo += qi * Load(k_lo + at);
        size[j] += qa * (kHasMagnitude ? Load(k_magnitude + at) : Magnitude(row));
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const int64_t at = run * kRun + j * kVec;
      const Pair<Vec> dot = PairSum(sum[j].hi, sum[j].lo);
      Store(dot.hi, dot_hi + at);
      Store(dot.lo, dot_lo + at);
      Store(size[j], magnitude + at);
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

constexpr size_t kDoubleBytes = sizeof(double);

// Rows of V that all runs of channels read before the next rows, so that they are still in L2: a
// row of 128 channels takes 1 KiB. Each run loads its sums, adds these rows, and stores them.
constexpr int64_t kRowsInCache = 128;

template <typename Body>
KVCHECK_INLINE void OverRows(int64_t n, Body body) {
  for (int64_t j = 0; j < n; j += kRowsInCache) {
    body(j, n - j < kRowsInCache ? n : j + kRowsInCache);
  }
}

KVCHECK_INLINE void Clear(double* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = 0;
}

// One run of channels, held in registers: kVectors of T, which is Vec, or double for the channels
// that remain. Every channel is a chain of dependent additions, so several advance at once.
template <typename T, int kVectors>
KVCHECK_INLINE void WeightedSumRun(const int32_t* keys, int64_t begin, int64_t end, const double* p,
                                   const double* v, int64_t dv, int64_t first, double* o) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  T sum[kVectors];
  __builtin_memcpy(sum, o + first, sizeof(sum));
  for (int64_t j = begin; j < end; ++j) {
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
  Clear(o, dv);
  OverRows(n, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (; first + kChains * kVec <= dv; first += kChains * kVec) {
      WeightedSumRun<Vec, kChains>(keys, begin, end, p, v, dv, first, o);
    }
    for (; first + kVec <= dv; first += kVec) {
      WeightedSumRun<Vec, 1>(keys, begin, end, p, v, dv, first, o);
    }
    for (; first < dv; ++first) WeightedSumRun<double, 1>(keys, begin, end, p, v, dv, first, o);
  });
}

// As WeightedSumRun. p_hi: not negative.
template <bool kHasLo, typename T, int kVectors>
KVCHECK_INLINE void WeightedSumDDRun(const int32_t* keys, int64_t n, const double* p_hi,
                                     const double* p_lo, const double* v, const double* v_lo,
                                     int64_t dv, int64_t first, double* o_hi, double* o_lo) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  Pair<T> sum[kVectors] = {};
  for (int64_t j = 0; j < n; ++j) {
    const Pair<T> weight = {InEveryLane<T>(p_hi[j]), InEveryLane<T>(p_lo[j])};
    const int64_t offset = int64_t{keys[j]} * dv + first;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const T value = LoadAs<T>(v + offset + i * kLength);
      if constexpr (kHasLo) {
        sum[i] = sum[i] + weight * PairSum(value, LoadAs<T>(v_lo + offset + i * kLength));
      } else {
        sum[i] = sum[i] + TimesExact(weight, value);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    __builtin_memcpy(o_hi + first + i * kLength, &sum[i].hi, sizeof(T));
    __builtin_memcpy(o_lo + first + i * kLength, &sum[i].lo, sizeof(T));
  }
}

template <bool kHasLo>
void WeightedSumDDLoop(const int32_t* keys, int64_t n, const double* p_hi, const double* p_lo,
                       const double* v, const double* v_lo, int64_t dv, double* o_hi,
                       double* o_lo) {
  int64_t first = 0;
  for (; first + kPairChains * kVec <= dv; first += kPairChains * kVec) {
    WeightedSumDDRun<kHasLo, Vec, kPairChains>(keys, n, p_hi, p_lo, v, v_lo, dv, first, o_hi, o_lo);
  }
  for (; first + kVec <= dv; first += kVec) {
    WeightedSumDDRun<kHasLo, Vec, 1>(keys, n, p_hi, p_lo, v, v_lo, dv, first, o_hi, o_lo);
  }
  for (; first < dv; ++first) {
    WeightedSumDDRun<kHasLo, double, 1>(keys, n, p_hi, p_lo, v, v_lo, dv, first, o_hi, o_lo);
  }
}

void WeightedSumDD(const int32_t* keys, int64_t n, const double* p_hi, const double* p_lo,
                   const double* v, const double* v_lo, int64_t dv, double* o_hi, double* o_lo) {
  if (v_lo == nullptr) {
    WeightedSumDDLoop<false>(keys, n, p_hi, p_lo, v, v_lo, dv, o_hi, o_lo);
  } else {
    WeightedSumDDLoop<true>(keys, n, p_hi, p_lo, v, v_lo, dv, o_hi, o_lo);
  }
}

// Sums of one run of channels, as WeightedSumRun.
template <bool kHasY, typename T, int kVectors>
KVCHECK_INLINE void SumChannelRun(const int32_t* keys, int64_t begin, int64_t end, const double* p,
                                  const double* c, const double* x, const double* y,
                                  const double* v, int64_t dv, const double* o, int64_t first,
                                  const ChannelSumArrays& out) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  T center[kVectors], mass[kVectors], sum_c[kVectors], sum_x[kVectors];
  T sum_y[kVectors], largest[kVectors], spread[kVectors];
  __builtin_memcpy(center, o + first, sizeof(center));
  __builtin_memcpy(mass, out.mass + first, sizeof(mass));
  __builtin_memcpy(sum_c, out.c + first, sizeof(sum_c));
  __builtin_memcpy(sum_x, out.x + first, sizeof(sum_x));
  __builtin_memcpy(sum_y, out.y + first, sizeof(sum_y));
  __builtin_memcpy(largest, out.largest + first, sizeof(largest));
  __builtin_memcpy(spread, out.spread + first, sizeof(spread));
  for (int64_t j = begin; j < end; ++j) {
    const double* row = v + int64_t{keys[j]} * dv + first;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const T value = LoadAs<T>(row + i * kLength);
      const T size = Magnitude(value);
      const T gap = Magnitude(value - center[i]);
      mass[i] += p[j] * size;
      sum_c[i] += c[j] * gap;
      sum_x[i] += x[j] * size;
      if (kHasY) sum_y[i] += y[j] * size;
      largest[i] = Larger(largest[i], size);
      spread[i] = Larger(spread[i], gap);
    }
  }
  __builtin_memcpy(out.mass + first, mass, sizeof(mass));
  __builtin_memcpy(out.c + first, sum_c, sizeof(sum_c));
  __builtin_memcpy(out.x + first, sum_x, sizeof(sum_x));
  __builtin_memcpy(out.y + first, sum_y, sizeof(sum_y));
  __builtin_memcpy(out.largest + first, largest, sizeof(largest));
  __builtin_memcpy(out.spread + first, spread, sizeof(spread));
}

template <bool kHasY>
void ChannelSumsLoop(const int32_t* keys, int64_t n, const double* p, const double* c,
                     const double* x, const double* y, const double* v, int64_t dv, const double* o,
                     const ChannelSumArrays& out) {
  double* const all_sums[] = {out.mass, out.c, out.x, out.y, out.largest, out.spread};
  for (double* sums : all_sums) Clear(sums, dv);
  OverRows(n, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (; first + kSumChains * kVec <= dv; first += kSumChains * kVec) {
      SumChannelRun<kHasY, Vec, kSumChains>(keys, begin, end, p, c, x, y, v, dv, o, first, out);
    }
    for (; first + kVec <= dv; first += kVec) {
      SumChannelRun<kHasY, Vec, 1>(keys, begin, end, p, c, x, y, v, dv, o, first, out);
    }
    for (; first < dv; ++first) {
      SumChannelRun<kHasY, double, 1>(keys, begin, end, p, c, x, y, v, dv, o, first, out);
    }
  });
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

// One run of columns through all cells. What a level adds to the finer ones is nothing where a cell
// holds a single one, which most do.
template <bool kHasBoth, typename T, int kVectors>
KVCHECK_INLINE void CellRun(const CellOrder& order, const double* v, int64_t columns, int64_t first,
                            const CellSquares& out) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  T sum[kMostCellLevels][kVectors] = {}, values[kMostCellLevels][kVectors] = {};
  T both[kMostCellLevels][kVectors] = {};
  double weight[kMostCellLevels] = {};
  bool is_open[kMostCellLevels] = {};
  const auto join = [&](int level, const T* from, double w) {
    if (level == order.levels) return;
    if (!is_open[level]) {
      is_open[level] = true;
      weight[level] = w;
      for (int i = 0; i < kVectors; ++i) sum[level][i] = from[i];
      return;
    }
    for (int i = 0; i < kVectors; ++i) {
      values[level][i] += (sum[level][i] + sum[level][i]) * from[i];
      if (kHasBoth) both[level][i] += sum[level][i] * w + from[i] * weight[level];
      sum[level][i] += from[i];
    }
    weight[level] += w;
  };
  const auto close = [&](int level) {
    if (!is_open[level]) return;
    is_open[level] = false;
    join(level + 1, sum[level], weight[level]);
  };
  for (int64_t j = 0; j < order.n; ++j) {
    for (int level = 1; level <= order.closes[j]; ++level) close(level);
    const double* row = v + int64_t{order.rows[j]} * columns + first;
    T own[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      own[i] = order.weight[j] * LoadAs<T>(row + i * kLength);
      values[0][i] += own[i] * own[i];
      if (kHasBoth) both[0][i] += own[i] * order.weight[j];
    }
    join(1, own, order.weight[j]);
  }
  for (int level = 1; level < order.levels; ++level) close(level);
  for (int level = 0; level < order.levels; ++level) {
    __builtin_memcpy(out.of_values + level * columns + first, values[level], sizeof(values[level]));
    if (kHasBoth) {
      __builtin_memcpy(out.of_both + level * columns + first, both[level], sizeof(both[level]));
    }
  }
}

template <bool kHasBoth>
void CellLoop(const CellOrder& order, const double* v, int64_t columns, const CellSquares& out) {
  int64_t first = 0;
  for (; first + kSumChains * kVec <= columns; first += kSumChains * kVec) {
    CellRun<kHasBoth, Vec, kSumChains>(order, v, columns, first, out);
  }
  for (; first + kVec <= columns; first += kVec) {
    CellRun<kHasBoth, Vec, 1>(order, v, columns, first, out);
  }
  for (; first < columns; ++first) {
    CellRun<kHasBoth, double, 1>(order, v, columns, first, out);
  }
}

void CellSquaresKernel(const CellOrder& order, const double* v, int64_t columns,
                       const CellSquares& out) {
  if (out.of_both == nullptr) {
    CellLoop<false>(order, v, columns, out);
  } else {
    CellLoop<true>(order, v, columns, out);
  }
}

// Sums runs [begin, end); j is the first key of run `begin`.
template <bool kHasSquares, typename T, int kVectors>
KVCHECK_INLINE void RunSumsOf(const int32_t* keys, const int32_t* run, int64_t j, int64_t n,
                              int64_t begin, int64_t end, const double* p, const double* v,
                              int64_t dv, int64_t first, double* prefix, double* largest_mass,
                              double* squares) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  T sum[kVectors], largest[kVectors], square[kVectors] = {};
  __builtin_memcpy(sum, prefix + begin * dv + first, sizeof(sum));
  __builtin_memcpy(largest, largest_mass + first, sizeof(largest));
  if (kHasSquares) __builtin_memcpy(square, squares + first, sizeof(square));
  for (int64_t r = begin; r < end; ++r) {
    T mass[kVectors] = {};
    for (; j < n && run[j] == r; ++j) {
      const double* row = v + int64_t{keys[j]} * dv + first;
      for (int i = 0; i < kVectors; ++i) {
        const T term = p[j] * LoadAs<T>(row + i * kLength);
        sum[i] += term;
        mass[i] += Magnitude(term);
        if (kHasSquares) square[i] += term * term;
      }
    }
    for (int i = 0; i < kVectors; ++i) largest[i] = Larger(largest[i], mass[i]);
    __builtin_memcpy(prefix + (r + 1) * dv + first, sum, sizeof(sum));
  }
  __builtin_memcpy(largest_mass + first, largest, sizeof(largest));
  if (kHasSquares) __builtin_memcpy(squares + first, square, sizeof(square));
}

template <bool kHasSquares>
void RunSumsLoop(const int32_t* keys, const int32_t* run, int64_t n, int64_t runs, const double* p,
                 const double* v, int64_t dv, double* prefix, double* largest_mass,
                 double* squares) {
  Clear(prefix, dv);
  Clear(largest_mass, dv);
  if (kHasSquares) Clear(squares, dv);
  int64_t j = 0;
  for (int64_t begin = 0; begin < runs;) {
    int64_t end = begin, next = j;
    while (end < runs && next - j < kRowsInCache) {
      while (next < n && run[next] == end) ++next;
      ++end;
    }
    int64_t first = 0;
    for (; first + kSumChains * kVec <= dv; first += kSumChains * kVec) {
      RunSumsOf<kHasSquares, Vec, kSumChains>(keys, run, j, n, begin, end, p, v, dv, first, prefix,
                                              largest_mass, squares);
    }
    for (; first + kVec <= dv; first += kVec) {
      RunSumsOf<kHasSquares, Vec, 1>(keys, run, j, n, begin, end, p, v, dv, first, prefix,
                                     largest_mass, squares);
    }
    for (; first < dv; ++first) {
      RunSumsOf<kHasSquares, double, 1>(keys, run, j, n, begin, end, p, v, dv, first, prefix,
                                        largest_mass, squares);
    }
    begin = end, j = next;
  }
}

void RunSums(const int32_t* keys, const int32_t* run, int64_t n, int64_t runs, const double* p,
             const double* v, int64_t dv, double* prefix, double* largest_mass, double* squares) {
  if (squares == nullptr) {
    RunSumsLoop<false>(keys, run, n, runs, p, v, dv, prefix, largest_mass, squares);
  } else {
    RunSumsLoop<true>(keys, run, n, runs, p, v, dv, prefix, largest_mass, squares);
  }
}

// x y + z; in one rounding where the instruction set has that.
KVCHECK_INLINE double MultiplyAdd(double x, double y, double z) {
#ifdef __FMA__
  return Fused(x, y, z);
#else
  return z + x * y;
#endif
}
KVCHECK_INLINE Vec MultiplyAdd(double x, Vec y, Vec z) {
#ifdef __FMA__
  return Fused(InEveryLane<Vec>(x), y, z);
#else
  return z + x * y;
#endif
}

// Rows at once: as many as leave registers for their sums.
constexpr int kScoreRows = kVec >= 8 ? 8 : kVec >= 4 ? 2 : 1;
constexpr int kSumRows = kVec >= 8 ? 4 : kVec >= 4 ? 2 : 1;
// Keys whose K, or V, several runs of rows read from the cache.
constexpr int64_t kBlockTiles = 8;

template <int kRows>
KVCHECK_INLINE void BlockScoresRun(const double* q, const double* k, int64_t d, int64_t tiles,
                                   double* dot, int64_t stride) {
  constexpr int kVectors = kTile / kVec;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    Vec sum[kRows * kVectors] = {};
    for (int64_t i = 0; i < d; ++i) {
      const double* row = k + (tile * d + i) * kTile;
#pragma GCC unroll 16
      for (int a = 0; a < kRows * kVectors; ++a) {
        sum[a] = MultiplyAdd(q[a / kVectors * d + i], Load(row + a % kVectors * kVec), sum[a]);
      }
    }
#pragma GCC unroll 16
    for (int a = 0; a < kRows * kVectors; ++a) {
      Store(sum[a], dot + a / kVectors * stride + tile * kTile + a % kVectors * kVec);
    }
  }
}

void BlockScores(const double* q, int64_t rows, const double* k, int64_t d, int64_t tiles,
                 double* dot) {
  const int64_t stride = tiles * kTile;
  for (int64_t first = 0; first < tiles; first += kBlockTiles) {
    const int64_t count = tiles - first < kBlockTiles ? tiles - first : kBlockTiles;
    const double* from = k + first * d * kTile;
    double* to = dot + first * kTile;
    int64_t row = 0;
    for (; row + kScoreRows <= rows; row += kScoreRows) {
      BlockScoresRun<kScoreRows>(q + row * d, from, d, count, to + row * stride, stride);
    }
    for (; row < rows; ++row) {
      BlockScoresRun<1>(q + row * d, from, d, count, to + row * stride, stride);
    }
  }
}

// One run of channels of some rows, as WeightedSumRun.
template <bool kHasSquares, typename T, int kVectors, int kRows>
KVCHECK_INLINE void BlockSumsRun(const double* w, const double* z, int64_t stride, int64_t n,
                                 const double* v, int64_t dv, int64_t first, double* o,
                                 double* mass, double* squares) {
  constexpr int kLength = sizeof(T) / kDoubleBytes;
  constexpr int kSums = kRows * kVectors;
  T sum[kSums], size[kSums], square[kSums];
  const auto at = [&](int a) { return a / kVectors * dv + first + a % kVectors * kLength; };
#pragma GCC unroll 16
  for (int a = 0; a < kSums; ++a) {
    sum[a] = LoadAs<T>(o + at(a));
    size[a] = LoadAs<T>(mass + at(a));
    if (kHasSquares) square[a] = LoadAs<T>(squares + at(a));
  }
  for (int64_t j = 0; j < n; ++j) {
    const double* row = v + j * dv + first;
#pragma GCC unroll 16
    for (int a = 0; a < kSums; ++a) {
      const T value = LoadAs<T>(row + a % kVectors * kLength);
      const double weight = w[a / kVectors * stride + j];
      sum[a] = MultiplyAdd(weight, value, sum[a]);
      size[a] = MultiplyAdd(weight, Magnitude(value), size[a]);
      if (kHasSquares) {
        square[a] = MultiplyAdd(z[a / kVectors * stride + j], value * value, square[a]);
      }
    }
  }
#pragma GCC unroll 16
  for (int a = 0; a < kSums; ++a) {
    __builtin_memcpy(o + at(a), &sum[a], sizeof(T));
    __builtin_memcpy(mass + at(a), &size[a], sizeof(T));
    if (kHasSquares) __builtin_memcpy(squares + at(a), &square[a], sizeof(T));
  }
}

template <bool kHasSquares, int kRows>
void BlockSumsOfRows(const double* w, const double* z, int64_t stride, int64_t n, const double* v,
                     int64_t dv, double* o, double* mass, double* squares) {
  int64_t first = 0;
  for (; first + kSumChains * kVec <= dv; first += kSumChains * kVec) {
    BlockSumsRun<kHasSquares, Vec, kSumChains, kRows>(w, z, stride, n, v, dv, first, o, mass,
                                                      squares);
  }
  for (; first + kVec <= dv; first += kVec) {
    BlockSumsRun<kHasSquares, Vec, 1, kRows>(w, z, stride, n, v, dv, first, o, mass, squares);
  }
  for (; first < dv; ++first) {
    BlockSumsRun<kHasSquares, double, 1, kRows>(w, z, stride, n, v, dv, first, o, mass, squares);
  }
}

template <bool kHasSquares>
void BlockSumsLoop(const double* w, const double* z, int64_t rows, int64_t n, const double* v,
                   int64_t dv, double* o, double* mass, double* squares) {
  constexpr int64_t kKeys = kBlockTiles * kTile;
  for (int64_t first = 0; first < n; first += kKeys) {
    const int64_t count = n - first < kKeys ? n - first : kKeys;
    int64_t row = 0;
    const auto run = [&](auto constant) {
      constexpr int kRows = decltype(constant)::value;
      for (; row + kRows <= rows; row += kRows) {
        const int64_t at = row * n + first, to = row * dv;
        BlockSumsOfRows<kHasSquares, kRows>(w + at, kHasSquares ? z + at : nullptr, n, count,
                                            v + first * dv, dv, o + to, mass + to,
                                            kHasSquares ? squares + to : nullptr);
      }
    };
    run(std::integral_constant<int, kSumRows>());
    run(std::integral_constant<int, 1>());
  }
}

void BlockSums(const double* w, const double* z, int64_t rows, int64_t n, const double* v,
               int64_t dv, double* o, double* mass, double* squares) {
  if (z == nullptr) {
    BlockSumsLoop<false>(w, z, rows, n, v, dv, o, mass, squares);
  } else {
    BlockSumsLoop<true>(w, z, rows, n, v, dv, o, mass, squares);
  }
}

}  // namespace

extern const EvaluateKernels KVCHECK_EVALUATE_TABLE = {
    KVCHECK_EVALUATE_NAME, Scores,        ScoresDD,          ExpArray, ExpDDArray,        DivideDD,
    WeightedSumLoop,       WeightedSumDD, ChannelSumsKernel, Project,  CellSquaresKernel, RunSums,
    BlockScores,           BlockSums};

}  // namespace kvcheck
