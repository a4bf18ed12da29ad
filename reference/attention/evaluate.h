// The vectorised evaluator: the definition of definition.h in double and double-double, the same
// operations in the same order per element, arranged so that the compiler vectorises over keys
// (scores, exp) and over channels (sums). Built for several instruction sets and dispatched at run
// time; all give the same bits, but for ScoreBlock and SumBlock.

#ifndef REFERENCE_ATTENTION_EVALUATE_H_
#define REFERENCE_ATTENTION_EVALUATE_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/attention/bound.h"
#include "reference/attention/definition.h"
#include "reference/attention/evaluate_kernels.h"

namespace kvcheck {

// Real: double or DoubleDouble. Precondition: at least one key.
template <typename Real>
RowAnswer<Real> Evaluate(const RowQuestion& row);

// Sums over the keys of the question with the weights of the bound, for every channel.
// o: nearest doubles of the exact output. magnitude, codec_error as in OperandRows.
// Shapes: out (Dv).
void SumChannels(const Arithmetic& a, const RowQuestion& row, std::span<const double> p,
                 const KeyWeights& weights, std::span<const double> o,
                 std::vector<ChannelSums>* out);
// The same, plainly.
void SumChannelsPlainly(const Arithmetic& a, const RowQuestion& row, std::span<const double> p,
                        const KeyWeights& weights, std::span<const double> o,
                        std::vector<ChannelSums>* out);

// out[c] = sum_j w_j v_jc in double over the keys of the question.
void WeightedSum(const RowQuestion& row, std::span<const double> weights, std::vector<double>* out);

// out[j][lane] = sum_c w[c][lane] v_jc over the keys of the question.
// Shapes: w (Dv, 8), out (keys, 8).
void Project(const RowQuestion& row, std::span<const double> w, std::vector<double>* out);

// What EvaluateKernels::cell_squares and run_sums give, by the instruction set in use.
void SquareCells(const CellOrder& order, const double* v, int64_t columns, const CellSquares& out);
void SumRuns(const RowQuestion& row, std::span<const int32_t> run, int64_t runs,
             std::span<const double> p, double* prefix, double* largest_mass, double* squares);

// Products for several rows of a head at once (EvaluateKernels::block_scores, block_sums): fused
// where the instruction set has that, and so the only numbers whose bits depend on it.
// first_tile: of K's tiles of kKeyTile keys.
void ScoreBlock(const HeadData& head, std::span<const double> q, int64_t first_tile, int64_t tiles,
                double* dot);
void SumBlock(const HeadData& head, int64_t first_key, int64_t keys, int64_t rows, const double* w,
              const double* z, double* o, double* mass, double* squares);
// out[j] = exp(x[j]).
void ExpAll(std::span<const double> x, double* out);

// Instruction sets that this build has and this processor runs, best first.
std::vector<std::string_view> EvaluatorTargets();
// Forces one of them ("" : the best again). For tests.
void SetEvaluatorTarget(std::string_view name);
// The table that the loops really come from.
std::string_view EvaluatorTargetInUse();

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_EVALUATE_H_
