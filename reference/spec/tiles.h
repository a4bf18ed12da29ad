// Expected and Observed values as sources of tiles: whole rows with their coordinates, which may be
// asked for twice, so that memory stays bounded whatever the size of a case.

#ifndef REFERENCE_SPEC_TILES_H_
#define REFERENCE_SPEC_TILES_H_

#include <cstddef>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/declared_change.h"
#include "reference/spec/dtype.h"
#include "reference/spec/row_sample.h"
#include "reference/spec/shape.h"

namespace kvcheck {

// The precision ladder: each step carries its own error bound.
enum class Precision { kDouble, kDoubleDouble, kOracle50, kOracle100 };

// Conformance: the bytes of a format's defined arithmetic, tolerance zero.
// Accuracy: distance to the exact value, within a derived bound.
enum class Claim { kConformance, kAccuracy };

// A tolerance that a user chose: |got - value| <= absolute + relative |value| + ulps spacings of
// the type at value, in exact arithmetic. ExpectedTile::bound is this, rounded. What the nearest
// double of a number leaves out stands beside it.
struct ChosenTolerance {
  double absolute = 0;
  double absolute_low = 0;
  double relative = 0;
  double ulps = 0;
  double ulps_low = 0;
  bool RoundsItsBound() const { return absolute_low != 0 || relative != 0 || ulps_low != 0; }
};

struct OutputInfo {
  std::string name;  // "out", "lse", "codes", ...
  DType dtype = DType::kFloat32;
  Shape shape;
  Claim claim = Claim::kAccuracy;
  std::string rule;                       // how a verdict names what was demanded; "": by the claim
  std::optional<ChosenTolerance> chosen;  // of accuracy; absent: the bound is derived
  // Elements of a tile row: the last extent, or 1 where each element is a row of its own (lse).
  int64_t row_length = 1;
  std::vector<std::string> terms;       // named parts of the bound
  std::vector<std::string> reasons;     // of alternatives and of rows that are not judged
  std::vector<std::string> groups;      // names of the groups of the statistics ("b=0 h=3")
  std::vector<std::string> directions;  // named fault directions of the statistics
  std::vector<std::string> hints;       // per direction: what to look for
  int per_unit_direction = -1;          // whose effect is that of a unit of a change; -1: none
  int varying_direction = -1;           // whose multiple is another in each row; -1: none
};

// How far a row is judged.
enum class Standing : uint8_t {
  kJudged,
  kUnconstrained,  // nothing is promised (the query of a padding token)
  kUndefined,      // a visible input is not finite, so no value is defined
  kUnbounded,      // the plan's own arithmetic may overflow inside: nothing can be proved
  kLeftOut,        // not in the sample of rows that is judged
};

// What losing inputs of a row would do to its result (reference/attention/bound.md, section 4,
// blindness), from what shows best.
enum class Sensitivity : uint8_t {
  kNoInputs,  // there is nothing to lose
  kShows,     // losing some one of them would show
  kDim,       // losing any one of them would not, losing many would
  kBlind,     // losing all but any one of them would not
};

// A comparison whose bound exceeds this share of the natural size of the data in more than half of
// the elements proves nothing (reference/attention/bound.md, section 4, vacuity), unless it is
// below ExpectedTile::least_fault there (reference/formats/formats.md, "What a round trip proves").
//
// Nor may a single row be vacuous (bound.md, section 4): in more than half of its elements the
// bound is more than this share of the mass, and either it is at least the mass in more than half
// of them, or zeros pass in all of them. Then a row that was never written passes, or one that is
// wrong by all of its size. Elements whose mass the type does not hold as a normal number have no
// say: they may all be right as zeros. Rows that have no inputs prove nothing and have no say in
// any share.
//
// Under a tolerance that a user chose, nor may more than this share of the rows be loose: at least
// half of the row is not what is expected, under a bound of more than this share of the data. The
// median alone would let half of the rows be anything.
inline constexpr double kVacuousShare = 0.1;

// A further value that the format or plan allows for one element.
struct Alternative {
  int64_t element = 0;  // within the tile
  double value = 0;
  bool any = false;  // every value is allowed (bytes that carry no meaning)
  int reason = 0;    // index into OutputInfo::reasons
  // Conformance: where not 0, these bits of the code are free and the others are those of the
  // expected code, in place of value.
  uint64_t free_bits = 0;
};

// The statistical tier for the rows of a tile (bound.md, section 4). w = effect / sigma^2.
// Logarithms of some weights of a row, and of how many there are.
using RowLikeness = std::array<double, 6>;

struct TileStatistics {
  std::vector<uint8_t> taken;                 // per row: 1 where it takes part
  std::vector<double> sigma_squared;          // per element
  std::vector<std::vector<double>> effect;    // [direction][element]: faulty minus true output
  std::vector<std::vector<double>> mean;      // [direction][row]: of Z, by the output's rounding
  std::vector<std::vector<double>> variance;  // [direction][row]: share of the row in Var_Z
  // What the model of random roundings does not cover, at its largest: |Z| per direction and row,
  // and per row the sum of (error / sigma)^2.
  std::vector<std::vector<double>> slack;  // [direction][row]
  std::vector<double> slack_squared;       // per row
  std::vector<double> gram_norm;           // per row: Frobenius norm of the covariance of e/sigma
  // Per row: equal where the rows are the same computation on the same numbers, whose errors are
  // the same too.
  std::vector<uint64_t> identity;
  // Per row, numbers of which all are within `like_within` of those of another row where the two
  // round nearly alike. Empty: only rows of one identity do.
  std::vector<RowLikeness> likeness;
  double like_within = 0;
};

// A contiguous range of whole rows of one output.
struct ExpectedTile {
  int output = 0;  // index into Outputs()
  int64_t first_row = 0;
  int64_t row_count = 0;
  Precision precision = Precision::kDouble;
  std::vector<double> value;     // nearest double of the exact value
  std::vector<double> value_lo;  // what remains of it; empty when nothing does
  // Conformance: the expected codes, little endian, where value alone does not say them (int64, the
  // payload of a NaN); empty: value, encoded.
  std::vector<std::byte> codes;
  std::vector<double> bound;  // largest |got - value| that the plan explains
  // Where TileRequest::noise made `bound` smaller than what any kernel of the plan may be off by:
  // that proven bound, per element. Empty: `bound` is proven.
  std::vector<double> proven_bound;
  std::vector<double> reference_bound;  // error of value + value_lo itself; empty: exact
  // Rows that TileRequest::accepts took: 1. Their `bound` is no more than the plan's, and their
  // proven bound no less. Empty: none.
  std::vector<uint8_t> accepted;
  std::vector<double> mass;  // natural size of an element (sum of p |v|); empty: |value|
  // How near to value the result of a fault may come that the bound is to show, where the
  // definition names one: of a storage format, another code. Where the bound is smaller, something
  // is proved even if it is large beside the mass. Empty: no such fault is known.
  std::vector<double> least_fault;
  std::vector<std::vector<double>> terms;  // [term][element], as OutputInfo::terms
  std::vector<Standing> standing;          // per row; empty: all judged
  std::vector<int> standing_reason;        // per row, beside standing
  // Elements of judged rows for which no value is defined: 1; empty: none.
  std::vector<uint8_t> undefined;
  int undefined_reason = 0;  // index into OutputInfo::reasons
  // Rows where the plan's own arithmetic may leave no finite number: 1; what is NaN or infinite
  // there proves nothing, anything else is judged. Empty: none.
  std::vector<uint8_t> may_overflow;
  std::vector<Alternative> alternatives;  // by ascending element
  // Where it depends on one element what another may be: takes the observed values of the tile and
  // sets what is then expected. Empty: nothing does.
  std::function<void(std::span<const double> got, ExpectedTile* tile)> given;
  std::vector<int> group;                // per row: index into OutputInfo::groups; may be empty
  std::vector<double> detectable_share;  // per row sampled: share of inputs whose loss would show
  std::vector<Sensitivity> sensitivity;  // per row; empty: not known
  std::optional<TileStatistics> statistics;
};

struct TileRequest {
  Precision precision = Precision::kDouble;
  bool terms = false;
  bool statistics = false;
  bool every_row = false;  // statistics of all rows, not of some of each head
  // Bounds under the model of independent roundings where they are smaller than the proven ones
  // (reference/attention/bound.md, section 5).
  bool noise = false;
  // Rows that will be judged; nullptr: all. A source need not compute the others: they stand as
  // kLeftOut.
  const RowSample* sample = nullptr;
  // Whether all that was observed of a row lies within `tolerance` of `value`. A source may leave
  // such a row at bounds that are cheaper than its own (ExpectedTile::accepted). Empty: every row
  // has its own. Source: may be called from several threads.
  std::function<bool(int output, int64_t row, std::span<const double> value,
                     std::span<const double> tolerance)>
      accepts = {};
};

class ExpectedSource;
struct RowsToExplain;  // seen_keys.h
struct SeenKeys;

// The same outputs for another question, or under another declaration: what a wrong answer may be
// the right one for.
struct OtherReading {
  std::string name;  // of the cause: "K transposed"
  std::string text;  // of the hint: "K were stored transposed"
  // Only what is declared of the arithmetic differs, and with it the bounds: no mistake. Then there
  // is neither name nor text.
  std::optional<DeclaredChange> declared;
  // Where it explains, what else would is no news: the rows look alike to it.
  bool is_sufficient = false;
  // Every observed value of the rows that are looked at is such a one; empty: nothing is asked.
  std::function<bool(double value)> observed_is;
  // Of so many that one row was held against, this one was picked.
  int64_t picked_from = 1;
  // Rows that pass as asked have to be explained too, not only those that fail.
  bool of_every_row = false;
  // An answer is explained where each row is what one of these expects; each has the tiles of the
  // source itself. nullptr: this one cannot be.
  std::vector<std::function<std::shared_ptr<const ExpectedSource>()>> sources;
  // Row of the observed output that is read in place of a row; empty: that row.
  std::function<int64_t(int64_t row)> observed_row;
};

class ExpectedSource {
 public:
  virtual ~ExpectedSource() = default;
  virtual const std::vector<OutputInfo>& Outputs() const = 0;
  // Tiles cover every row of every output exactly once, in an order that does not depend on
  // threads.
  virtual int64_t TileCount() const = 0;
  // The tiles of index: one per output that is computed together. Thread-safe, and a pure function
  // of its arguments.
  virtual std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const = 0;
  // The highest precision at which the values differ from those below it. Beyond it nothing is
  // asked again.
  virtual Precision FinestPrecision() const { return Precision::kOracle100; }
  // Rows of an output that a sample should not leave to chance (queries of padding, fully masked
  // ones), ascending, at most `most`, spread over all there are.
  virtual std::vector<int64_t> UnusualRows(int output, int64_t most) const {
    static_cast<void>(output), static_cast<void>(most);
    return {};
  }
  // Mistakes and declarations that a failing answer of this output may come from, likeliest or
  // cheapest first. What they refer to must outlive them.
  virtual std::vector<OtherReading> OtherReadings(int output) const {
    static_cast<void>(output);
    return {};
  }
  // What the errors of wrong rows say about the inputs that they were computed from. nullptr:
  // nothing can be said of this output.
  virtual std::shared_ptr<const SeenKeys> Seen(int output, const RowsToExplain& rows) const {
    static_cast<void>(output), static_cast<void>(rows);
    return nullptr;
  }
  // Questions that the asked one may be an incomplete form of, likeliest first; the text of each is
  // what would be said besides: "softcap=30". got: a failing row of the observed output, in which
  // some (which window) show themselves. What they refer to must outlive them.
  virtual std::vector<OtherReading> Completions(int output, int64_t row,
                                                std::span<const double> got) const {
    static_cast<void>(output), static_cast<void>(row), static_cast<void>(got);
    return {};
  }
  // Fields that the implementation left unsaid, as "field=value".
  virtual std::vector<std::string> Assumptions() const { return {}; }
};

class ObservedSource {
 public:
  virtual ~ObservedSource() = default;
  // Type and shape of a tensor; nullptr when it is absent.
  virtual const OutputInfo* Find(const std::string& name) const = 0;
  virtual std::vector<std::string> Names() const = 0;
  // Bytes of whole rows, rows counted along the last axis. Thread-safe.
  virtual void Read(const std::string& name, int64_t first_element,
                    std::span<std::byte> out) const = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TILES_H_
