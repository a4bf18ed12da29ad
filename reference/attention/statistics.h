// The statistical tier of bound.md, section 4: what a bound cannot see. Per row: the noise level
// that the plan explains, the effect of each named fault, and the moments of their correlation.

#ifndef REFERENCE_ATTENTION_STATISTICS_H_
#define REFERENCE_ATTENTION_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/attention/row_reference.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// A named fault and its first-order effect on the output. Where the fault does not exist (no other
// head, no key before the first visible one) the effect is zero, and its statistic too.
struct FaultDirection {
  std::string_view name;
  std::string_view hint;
};
std::span<const FaultDirection> FaultDirections();
// The one whose effect is the derivative by the logarithm of the scale.
inline constexpr int kScaleDirection = 0;
// The one whose multiple is another in each row, of either sign.
inline constexpr int kRowFactorDirection = 8;

// The head that the direction "other key/value head" reads in place of the query head's own: that
// of tiled grouping (query_head mod Hkv), or the next one where these are the same. nullopt: Hkv
// = 1.
std::optional<int64_t> OtherKvHead(const AttentionCase& c, int64_t query_head);

// The output, in double, of a row that reads another head of K and V in place of its own. Keys are
// decoded a few at a time: memory does not grow with their number. Shape: (Dv).
std::vector<double> OutputOverHead(const AttentionCase& c, const Profile& profile,
                                   const TensorMap& inputs, int64_t batch, int64_t kv_head,
                                   const RowQuestion& row);

TileStatistics EmptyStatistics(size_t rows, size_t channels);

// Fills row `r` of the tile. of_other_head (Dv): the row's output over the head of OtherKvHead;
// empty: there is none. Every plan has a noise model (noise.h): what is not random in it is slack.
void AddRowStatistics(const RowContext& context, const OwnedQuestion& owned,
                      const RowReference& row, std::span<const double> of_other_head, size_t r,
                      TileStatistics* statistics);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_STATISTICS_H_
