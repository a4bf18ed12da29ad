// The loops of the vectorised evaluator as a table of functions, one table per instruction set.
// Raw pointers only: the translation units behind it are compiled for several instruction sets and
// must emit nothing with external linkage but their table.

#ifndef REFERENCE_ATTENTION_EVALUATE_KERNELS_H_
#define REFERENCE_ATTENTION_EVALUATE_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck {

// Directions that one projection serves at once.
inline constexpr int kProjectLanes = 16;

// Per channel accumulators of SumChannels.
struct ChannelSumArrays {
  double* mass;
  double* c;
  double* x;
  double* y;
  double* parts;
  double* codec;
  double* largest;
  double* spread;
};

// Rows in an order in which those of a cell are neighbours; wider cells hold finer ones. Level 0 is
// a row by itself.
struct CellOrder {
  const int32_t* rows;
  int64_t n;
  const double* weight;   // per row, in this order
  const uint8_t* closes;  // per row: levels 1 .. closes[i] end before it
  int32_t levels;         // 0 included, at most kMostCellLevels
};
inline constexpr int kMostCellLevels = 10;

// Per level and column, what its cells' sums of weight x value have as squares more than those of
// the cells that they hold. Shapes: [level][columns].
struct CellSquares {
  double* of_values;
  double* of_both;  // of sum and weight; null: not wanted
};

struct EvaluateKernels {
  const char* name;
  // dot[j], magnitude[j] for the kKeyTile keys of each tile. k, k_magnitude: [tile][d][kKeyTile].
  void (*scores)(const double* q, const double* k, const double* k_magnitude, int64_t d,
                 int64_t tiles, double* dot, double* magnitude);
  // The same in double-double; k_lo may be null.
  void (*scores_dd)(const double* q, const double* k, const double* k_lo, const double* k_magnitude,
                    int64_t d, int64_t tiles, double* dot_hi, double* dot_lo, double* magnitude);
  void (*exp)(const double* x, int64_t n, double* out);
  void (*exp_dd)(const double* x_hi, const double* x_lo, int64_t n, double* out_hi, double* out_lo);
  // p[j] = e[j] / denominator in double-double.
  void (*divide_dd)(const double* e_hi, const double* e_lo, int64_t n, double l_hi, double l_lo,
                    double* p_hi, double* p_lo);
  // o[c] = sum_j p[j] v[keys[j]][c].
  void (*weighted_sum)(const int32_t* keys, int64_t n, const double* p, const double* v, int64_t dv,
                       double* o);
  void (*weighted_sum_dd)(const int32_t* keys, int64_t n, const double* p_hi, const double* p_lo,
                          const double* v, const double* v_lo, int64_t dv, double* o_hi,
                          double* o_lo);
  // y may be null; magnitude and codec_error too (|v| and none).
  void (*channel_sums)(const int32_t* keys, int64_t n, const double* p, const double* c,
                       const double* x, const double* y, const double* v, const double* magnitude,
                       bool factored, const double* codec_error, int64_t dv, const double* o,
                       const ChannelSumArrays& out);
  // out[j][lane] = sum_c w[c][lane] v[keys[j]][c], kProjectLanes lanes.
  void (*project)(const int32_t* keys, int64_t n, const double* w, const double* v, int64_t dv,
                  double* out);
  void (*cell_squares)(const CellOrder& order, const double* v, int64_t columns,
                       const CellSquares& out);
  // Sums of p v over runs of columns: run[j] of a key, rising from 0. out: prefix [runs + 1][dv] of
  // sums from the first run on; largest_mass (dv), of sum |p v| over a run; squares (dv), of p v,
  // or null.
  void (*run_sums)(const int32_t* keys, const int32_t* run, int64_t n, int64_t runs,
                   const double* p, const double* v, int64_t dv, double* prefix,
                   double* largest_mass, double* squares);
  // Products of several rows at once, in any order of additions. dot [rows][tiles * kKeyTile]; q
  // [rows][d]; k as in scores.
  void (*block_scores)(const double* q, int64_t rows, const double* k, int64_t d, int64_t tiles,
                       double* dot);
  // Adds to o, mass, squares [rows][dv] the sums over j of w v, w |v| and z v^2. w, z [rows][n]; v
  // [n][dv]; z and squares may be null.
  void (*block_sums)(const double* w, const double* z, int64_t rows, int64_t n, const double* v,
                     int64_t dv, double* o, double* mass, double* squares);
};

extern const EvaluateKernels kEvaluateBaseline;
#ifdef __x86_64__
extern const EvaluateKernels kEvaluateV3;
extern const EvaluateKernels kEvaluateV4;
#endif

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_EVALUATE_KERNELS_H_
