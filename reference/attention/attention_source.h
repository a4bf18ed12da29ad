// Expected values of an attention case as a source of tiles: `out`, and `lse` when the case asks.
// A tile is up to kRowsPerTile consecutive rows (head, query) of one batch row and one key/value
// head, so that K and V of a head are decoded once.

#ifndef REFERENCE_ATTENTION_ATTENTION_SOURCE_H_
#define REFERENCE_ATTENTION_ATTENTION_SOURCE_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "reference/attention/arithmetic.h"
#include "reference/attention/row_reference.h"
#include "reference/attention/row_sums.h"
#include "reference/attention/visible.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

inline constexpr int64_t kRowsPerTile = 32;

// Reasons of the log-sum-exp of queries that see no key: not judged, as where the profile has the
// mean of all keys (masked_row=mean); and something else than -inf that libraries have in its
// place.
inline constexpr std::string_view kLseNotJudged = "log-sum-exp of a query that sees no key";
inline constexpr std::string_view kLseOfOthers =
    "log-sum-exp of a query that sees no key, which is not -inf";

class AttentionSource : public ExpectedSource {
 public:
  // inputs must outlive the source. Errors: kMissingData as CheckInputs; kIllegalCase.
  // other: of the same inputs; where its K and V are those of this case, they are decoded once.
  AttentionSource(const AttentionCase& c, const Profile& profile, const Plan& plan,
                  const TensorMap& inputs, const AttentionSource* other = nullptr);
  ~AttentionSource() override;

  // Sums of whole heads come from another evaluator where it has them, of cases whose K, V and mask
  // it can be given. Before the first tile.
  void UseDevice(DeviceSums sums);

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override;
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  std::vector<OtherReading> OtherReadings(int output) const override;
  std::shared_ptr<const SeenKeys> Seen(int output, const RowsToExplain& rows) const override;
  std::vector<OtherReading> Completions(int output, int64_t row,
                                        std::span<const double> got) const override;
  // Fully masked queries, and the two on either side of the end of padding.
  std::vector<int64_t> UnusualRows(int output, int64_t most) const override;
  std::vector<std::string> Assumptions() const override { return arithmetic_.assumed; }

  const Arithmetic& arithmetic() const { return arithmetic_; }

 private:
  struct HeadCache;
  struct DeviceHeads;
  // Rows of the output, counted over (B, Hq, L).
  QueryIndex RowAt(int64_t row) const;
  std::shared_ptr<const HeadData> Head(int64_t batch, int64_t kv_head) const;
  // The output of a row that reads another head in place of its own, in double; shape (Dv).
  std::vector<double> OutputOver(int64_t batch, int64_t kv_head, const RowQuestion& row) const;
  // Whether a row takes part in the statistics: up to 32 rows of a head do.
  bool TakesStatistics(const QueryIndex& query, const TileRequest& request) const;
  // Whether it is one of these 32, or of fewer.
  bool IsOneOfSome(const QueryIndex& query) const;
  // What the device has of a head; nullptr: nothing.
  std::shared_ptr<const HeadSums> SumsOfHead(int64_t batch, int64_t kv_head,
                                             const HeadData& head) const;
  HeadQuestion QuestionOfHead(int64_t batch, int64_t kv_head) const;
  SeenColumns ColumnsSeen(int64_t batch) const;
  // Fills the rows of the tiles that the request accepts at cheaper bounds; of each row whether it
  // was one.
  std::vector<uint8_t> AcceptRows(const HeadData& head, const TileRequest& request,
                                  std::vector<ExpectedTile>* tiles) const;
  // Whether K and V decode to the numbers of the other's.
  bool HasHeadsOf(const AttentionSource& other) const;
  // The context of one row; q must hold k_dim doubles and outlive it.
  RowContext MakeContext(const QueryIndex& query, const HeadData& head,
                         std::vector<double>* q) const;

  AttentionCase case_;
  Profile profile_;
  Arithmetic arithmetic_;
  const TensorMap& inputs_;
  MaskReader mask_;
  std::vector<double> sinks_;
  std::vector<OutputInfo> outputs_;
  int64_t rows_per_head_ = 0;  // query heads of a key/value head times L
  int64_t tiles_per_head_ = 0;
  bool streams_other_heads_ = false;  // their keys are decoded a few at a time, and not kept
  std::shared_ptr<HeadCache> heads_;
  std::shared_ptr<DeviceHeads> device_;  // null: all sums are those of this processor
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_ATTENTION_SOURCE_H_
