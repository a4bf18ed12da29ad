// What an implementation of caches is: our optimized caches, the model, a mutant of it, an adapter
// of a real library. The calls are those of reference/cache/contract.md; nothing here is text and
// nothing has to allocate, because millions of calls are judged one by one.
//
// Rules for all calls.
//   Refused   an illegal call: a message, and nothing has changed, *out and every view included.
//   Unsupported  a legal call that this implementation does not have; nothing has changed either.
//   Aliasing  operands may be the cache itself (Extend(*this)), or named twice (Merge({a, a})).
//   out       may hold a cache of the same factory that nobody needs any more: its memory may be
//             reused. It is never an operand of the call.
//   Steps     the queries of the last append can be asked about (visible sets, Attend) until the
//             cache changes otherwise: a successful Prepare, Trim, Filter, Extend, ToQuantized, or
//             Finalize of something pending ends the step, whatever it did. A cache that was made
//             by another one (Extract, CopyTo, Merge, Load) starts without a step. Refused calls
//             and calls that only read do not end it.

#ifndef REFERENCE_SPEC_CACHE_IMPLEMENTATION_H_
#define REFERENCE_SPEC_CACHE_IMPLEMENTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/spec/cache_layout.h"
#include "reference/spec/cache_profile.h"
#include "reference/spec/cache_space.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/state_store.h"
#include "reference/spec/trace.h"

namespace kvcheck {

enum class OpStatus : uint8_t { kOk, kRefused, kUnsupported };

// What a call returned that does not fit together.
enum class Misfit {
  kNone,
  kMask,           // a mask over other columns than K and V have
  kKeysAndValues,  // K and V of different numbers of columns
};

struct OpResult {
  OpStatus status = OpStatus::kOk;
  // Why, where not kOk: what is wrong with the call. Valid until the next call of the same object.
  std::string_view message;
  // Of kRefused: the call was not refused, but carried out wrongly.
  Misfit misfit = Misfit::kNone;
  // Of Append and Attend: the caller's arrays were modified, where their bytes cannot show it
  // because the implementation worked on a copy (another process).
  bool inputs_changed = false;
  // Arrays that an earlier call returned have changed, where that shows in another process alone.
  bool results_changed = false;
  // Of Attend: how this very answer was computed, where that is not what the capabilities say. Both
  // are valid until the next call of the same object; null: as the capabilities say.
  const Plan* plan = nullptr;
  const Profile* profile = nullptr;

  bool ok() const { return status == OpStatus::kOk; }
  static OpResult Refuse(std::string_view why, Misfit misfit = Misfit::kNone) {
    return {OpStatus::kRefused, why, misfit};
  }
  static OpResult Unsupported(std::string_view why) { return {OpStatus::kUnsupported, why}; }
};

// Distances in bytes. Channels, words, scales of one vector are contiguous.
struct VectorStrides {
  int64_t row = 0;
  int64_t head = 0;
  int64_t column = 0;
};

// Columns to append: K (rows, kv_heads, columns, k_dim), V (rows, kv_heads, v_columns, v_dim) of
// type dtype, the caller's, which must not be changed and hold something else after the call.
// Vectors that are padding hold NaN.
struct TokenColumns {
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t kv_heads = 0;
  int64_t columns = 0;
  std::optional<int64_t> v_columns{};  // not set: `columns`; another number is to be refused
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  VectorStrides k_strides;
  VectorStrides v_strides;

  int64_t ValueColumns() const { return v_columns.value_or(columns); }
};

// One plane of stored vectors: that of row b, head h and column c is at
// bytes + b strides.row + h strides.head + c strides.column. The strides of a parameter
// (PlaneScope::kTensor) are 0.
struct StoredPlane {
  const std::byte* bytes = nullptr;
  VectorStrides strides;

  const std::byte* At(int64_t row, int64_t head, int64_t column) const {
    return bytes + row * strides.row + head * strides.head + column * strides.column;
  }
};

// The plane of an array (rows, heads, columns, elements) without gaps; of a parameter (elements).
inline StoredPlane DensePlane(const Plane& plane, const std::byte* bytes, int64_t heads,
                              int64_t columns) {
  if (plane.scope == PlaneScope::kTensor) return {bytes, {}};
  const auto vector = static_cast<int64_t>(plane.Bytes());
  return {bytes, {heads * columns * vector, columns * vector, vector}};
}

// The stored vectors of K or of V, plane by plane, in the order of PlanesOf(format, head_dim).
struct StoredVectors {
  KvFormat format = PlainFormat{};
  std::array<StoredPlane, kMaxPlanes> planes{};

  bool AreShown() const { return planes[0].bytes != nullptr; }
};

enum class Known : int8_t { kCannotTell = -1, kNo = 0, kYes = 1 };

// The state of a cache as it stands, as views into its own storage, valid until the next call on
// it. A column is a physical index: no order is promised. Where an implementation cannot tell,
// pointers are null and numbers kUnknown.
struct StepView {
  static constexpr int64_t kUnknown = -1;

  int64_t rows = 0;
  int64_t columns = 0;  // physical columns that the masks cover
  int64_t queries = 0;  // columns of the last append; 0 when there is no step

  StoredVectors k;
  StoredVectors v;

  // Bit c % 64 of word c / 64 is column c; each bit row has (columns + 63) / 64 words, and its bits
  // beyond `columns` are 0.
  // (rows) bit rows: the columns that hold retained tokens of the row.
  const uint64_t* retained = nullptr;
  // `retained` was found by an append to a copy: it is what the next query sees, and the cache may
  // retain more.
  bool probed = false;
  // (rows, queries) bit rows: the columns that each query of the last append attends to, everything
  // included: causality, window, eviction, padding. Queries of padding columns may hold anything.
  const uint64_t* visible = nullptr;

  const int64_t* offsets = nullptr;        // (rows) tokens seen, evicted ones included
  const int64_t* unfed_padding = nullptr;  // (rows) padding columns still to come
  const CacheLayout* layout = nullptr;
  int64_t size = kUnknown;
  int64_t live_bytes = kUnknown;
  int64_t capacity_bytes = kUnknown;
  Known empty = Known::kCannotTell;
  Known trimmable = Known::kCannotTell;
  Known pending = Known::kCannotTell;  // a prepared prefill has not been finalized

  int64_t WordsPerRow() const { return (columns + 63) / 64; }
};

// The bit rows of a StepView that are known: never null, for no bits say that nothing is retained
// or seen, and null says that nobody can tell.
inline const uint64_t* KnownBits(const std::vector<uint64_t>& words) {
  static constexpr uint64_t kNone = 0;
  return words.empty() ? &kNone : words.data();
}

// Queries of the columns of the last append.
struct AttendRequest {
  DType dtype = DType::kFloat32;  // of q and of the output: that of the appended vectors
  int64_t rows = 0;
  int64_t query_heads = 0;  // head h reads key/value head h / (query_heads / kv_heads)
  int64_t queries = 0;
  const std::byte* q = nullptr;  // (rows, query_heads, queries, k_dim), contiguous, unchanged
  double scale = 1;
  // The newest `window` tokens, the query's own included, beside the layout's rule. The first
  // `keep` tokens of a ring stay visible.
  std::optional<int64_t> window;
  const float* sinks = nullptr;  // (query_heads) logits whose value is 0; null: none
};

class Cache {
 public:
  virtual ~Cache() = default;

  // Refused: another type or shape than the cache's.
  virtual OpResult Append(const TokenColumns& columns) = 0;
  // lengths: tokens per row of the columns that follow, until Finalize; unfed left padding comes
  // before them. columns: how many columns will follow until Finalize, padding of both sides
  // included, for implementations that are told the right padding of each row; -1: nobody can tell.
  // Refused: another count than the rows, a negative length, already pending.
  virtual OpResult Prepare(std::span<const int64_t> lengths, int64_t columns) = 0;
  // Refused while lengths have not arrived. Does nothing when nothing is pending.
  virtual OpResult Finalize() = 0;
  // *trimmed: tokens that every row has really lost. Refused: a negative count, pending.
  virtual OpResult Trim(int64_t count, int64_t* trimmed) = 0;
  // The rows to have from now on, in this order, repeated or none. Refused: an index outside the
  // rows, pending.
  virtual OpResult Filter(std::span<const int64_t> rows) = 0;
  // Gains the rows of other, which is a cache of the same factory and is not changed. Refused:
  // another layout or format, either one pending.
  virtual OpResult Extend(const Cache& other) = 0;
  // In place; formats are judged one by one. A plain format becomes any format; an affine one stays
  // itself. Refused: an affine format to another, a group that does not divide head_dim, pending;
  // then neither K nor V has changed.
  virtual OpResult ToQuantized(const KvFormat& k, const KvFormat& v) = 0;
  // One row, without unfed padding and without capacity beyond its tokens. Refused: a row outside
  // the rows, pending.
  virtual OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const = 0;
  // Everything, unfed padding included. Refused: pending.
  virtual OpResult CopyTo(std::unique_ptr<Cache>* out) const = 0;
  // Refused: pending. The key's old record survives a failure.
  virtual OpResult Save(StateStore* store, std::string_view key) const = 0;
  // out: (rows, query_heads, queries, v_dim) of request.dtype, the caller's. Refused: another type
  // or shape than the step's, a window below 1, no step, pending.
  virtual OpResult Attend(const AttendRequest& request, std::byte* out) = 0;

  virtual void Observe(StepView* view) = 0;
  // Retained tokens of a row, from which follows how far Trim reaches: StepView::retained counted,
  // without making a view. kUnknown: cannot tell.
  virtual int64_t RetainedTokens(int64_t row) const = 0;
  // Fills what is allocated and holds no retained token with NaN (or all ones), which must change
  // nothing. For tests; may do nothing.
  virtual void PoisonUnused() {}
};

struct CacheCapabilities {
  std::string name;
  std::string version;
  CacheProfile cache_profile;
  Profile profile;  // of codes and of attention
  Plan plan;        // of Attend
  // What is there, so that cases are drawn which the implementation can answer: one space or the
  // other holds for a whole case. Empty: everything.
  std::vector<CacheSpace> spaces{};
  // Whether profile and plan are stated of every answer, so that a verdict names them.
  bool states_plan = false;
  // As Capabilities::foreign: calls may throw an ImplementationLoss.
  bool foreign = false;
  std::vector<std::string> warnings{};  // of what is judged, said before the first verdict
};

// Which states will be asked about after each operation of the run, so that an implementation in
// another process can send them together with its answer.
enum class ObserveHint : uint8_t {
  kNothing,    // none
  kTouched,    // those of the caches that the operation names, and of the one that it made
  kEverySlot,  // those of every cache that is still in use
};

// Thrown by a call that was rehearsed in another way, or whose answer makes it unclear which of the
// calls that were sent ahead it belongs to: the case is to be run again, one call at a time.
class RehearsedOtherwise : public std::exception {
 public:
  RehearsedOtherwise() = default;
  // loss: what was thrown in place of this when the calls are not sent ahead.
  // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept, not thrown
  explicit RehearsedOtherwise(std::exception_ptr loss) : loss_(std::move(loss)) {}
  const char* what() const noexcept override { return "the calls are not those of the rehearsal"; }
  const std::exception_ptr& loss() const { return loss_; }  // null: nothing

 private:
  std::exception_ptr loss_;
};

class TraceStore;  // reference/trace/trace_store.h

class CacheFactory {
 public:
  virtual ~CacheFactory() = default;
  virtual CacheCapabilities GetCapabilities() const = 0;
  // Whether the operation is there for caches of this layout and these formats: what coverage
  // tables show. A call that is not there answers kUnsupported.
  virtual bool Supports(CacheOpKind op, const CacheLayout& layout, const KvFormat& k,
                        const KvFormat& v) const {
    static_cast<void>(op), static_cast<void>(layout), static_cast<void>(k), static_cast<void>(v);
    return true;
  }

  // Where its caches save whatever store they are given; null: in that store.
  virtual TraceStore* OwnStore() { return nullptr; }

  // The setup of the caches made from now on: heads, dimensions, type of appended vectors, growth
  // step. Caches made before are not called any more, except as `out`.
  virtual OpResult Start(const CacheSetup& setup) = 0;
  // What will be observed after the operations that follow, until it is said again. A hint: what
  // was not announced may be observed all the same.
  virtual void ObserveAfter(ObserveHint hint) { static_cast<void>(hint); }
  // These caches are observed next, one after the other, before anything else is called.
  virtual void ObserveNext(std::span<Cache* const> caches) { static_cast<void>(caches); }

  // A rehearsal tells an implementation in another process all calls of a case before the answer to
  // the first is waited for. From here to EndRehearsal calls do nothing: they answer what Expect
  // announced, and views and outputs are empty. The same calls follow, from Start on, and their
  // answers are real; each may throw RehearsedOtherwise. False: there is no use in it, and none
  // begins.
  virtual bool BeginRehearsal() { return false; }
  // Of the next call: whether it is legal, so that it will not be refused. False: no more calls are
  // taken; the rest of the case is not rehearsed.
  virtual bool Expect(bool legal) { return static_cast<void>(legal), true; }
  virtual void EndRehearsal() {}
  // After the real calls, where not all that were rehearsed have come: answers to the others are
  // waited for, and dropped. False: there was another number of answers, or none came.
  virtual bool ForgetRehearsed() { return true; }

  // rows empty rows; the first left_padding[b] columns fed to row b are padding (empty span: none).
  // Refused: a layout that is not legal, a group that does not divide head_dim, a padding that is
  // negative or not one per row.
  virtual OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v,
                       int64_t rows, std::span<const int64_t> left_padding,
                       std::unique_ptr<Cache>* out) = 0;
  // Caches of one row each, some perhaps empty, as one batch with their unfed padding; at least
  // one. Refused: an operand with another number of rows than 1, different layouts or formats,
  // one pending.
  virtual OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) = 0;
  // Refused: nothing under the key, or a record that is not ours, damaged, of an unknown version,
  // or of other heads, dimensions or type than the setup's.
  virtual OpResult Load(const StateStore& store, std::string_view key,
                        std::unique_ptr<Cache>* out) = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CACHE_IMPLEMENTATION_H_
