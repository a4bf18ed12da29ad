// The case kind `cache`: operations on named slots, each of which holds a cache or nothing. What
// the operations must do is reference/cache/contract.md; grammar: reference/README.md, 3.8.
//
// Semantics are total. An operation that names an empty slot does nothing; a target slot is
// overwritten; a call that the contract forbids is part of the language: whoever runs it must
// refuse and change nothing.
//
// Two spellings with one meaning: one operation a line, or all on one line with "; " between.

#ifndef REFERENCE_SPEC_TRACE_H_
#define REFERENCE_SPEC_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/cache_layout.h"
#include "reference/spec/data_source.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"

namespace kvcheck {

enum class Observe : uint8_t {
  kEach,  // the state is judged after every operation
  kLast,  // after the last one alone; results of operations are judged in any case
};

// What holds for every cache of the case.
struct CacheSetup {
  CacheLayout layout;          // of `new` where it names none
  KvFormat k = PlainFormat{};  // likewise
  KvFormat v = PlainFormat{};
  DType x = DType::kFloat32;  // of appended vectors, of queries and of attention's output
  int64_t kv_heads = 1;
  int64_t query_heads = 1;
  int64_t k_dim = 64;
  int64_t v_dim = 64;
  int64_t growth_tokens = 8;  // step of capacity, where an implementation lets it be chosen
  Observe observe = Observe::kEach;
  DataSource data;  // tokens:SEED
  bool operator==(const CacheSetup&) const = default;
};

enum class CacheOpKind : uint8_t {
  kNew,          // new A rows=2 pad=1,0
  kAppend,       // append A 3
  kPrepare,      // prepare A 2,5
  kFinalize,     // finalize A
  kTrim,         // trim A 3
  kFilter,       // filter A 1,0,0
  kExtend,       // extend A B        (A gains the rows of B)
  kMerge,        // merge B,C -> D
  kExtract,      // extract A 1 -> B
  kToQuantized,  // to_quantized A k=affine:4:g64:f16 v=affine:4:g64:f16
  kCopy,         // copy A -> B
  kSave,         // save A s1
  kLoad,         // load s1 -> B
  kDamage,       // damage s1 flip at=13: what is stored is no longer what was saved
  kAttend,       // attend A window=8 sinks
  kDrop,         // drop A
};
inline constexpr int kCacheOpKinds = 16;

// "append", "to_quantized", ...
std::string_view Name(CacheOpKind kind);

// What is wrong with the columns of an illegal append.
enum class WrongColumns : uint8_t {
  kNothing,
  kRows,  // one more than the cache has
  kHeads,
  kKDim,
  kVDim,
  kType,
  kFewerRows,     // one alone, which would broadcast; none, of a cache of one
  kFewerHeads,    // likewise
  kFewerColumns,  // V has one column less than K; one more, where K has one
};
inline constexpr int kWrongColumns = 8;  // beside kNothing

enum class Damage : uint8_t {
  kTruncate,  // the last byte of one tensor is gone
  kFlip,      // one bit is another
  kForeign,   // a record of somebody else
  kVersion,   // a version that does not exist
};
inline constexpr int kDamageKinds = 4;
// "truncate", ...
std::string_view Name(Damage damage);

inline constexpr int kSlots = 5;       // A..E
inline constexpr int kStateKeys = 10;  // s0..s9

struct CacheOp {
  CacheOpKind kind = CacheOpKind::kNew;
  int slot = 0;                  // the cache operated on
  int target = 0;                // where the result goes; of extend: the cache whose rows are taken
  std::vector<int> operands;     // of merge
  int key = 0;                   // of save, load, damage
  int64_t count = 0;             // rows of new, columns of append, tokens of trim, row of extract
  std::vector<int64_t> numbers;  // padding of new, lengths of prepare, rows of filter
  std::optional<CacheLayout> layout;  // of new: instead of the setup's
  std::optional<KvFormat> k;          // of new, to_quantized
  std::optional<KvFormat> v;
  WrongColumns wrong = WrongColumns::kNothing;
  Damage damage = Damage::kTruncate;
  int64_t at = 0;                 // which byte or tensor is damaged, modulo what there is
  std::optional<int64_t> window;  // of attend
  std::optional<double> scale;    // of attend; absent: 1/sqrt(k_dim)
  bool sinks = false;             // of attend: one logit per query head joins the softmax
  bool operator==(const CacheOp&) const = default;
};

struct CacheCase {
  CacheSetup setup;
  std::vector<CacheOp> ops;
  bool operator==(const CacheCase&) const = default;
};

// One operation: "trim A 3".
std::string Print(const CacheOp& op);
std::string Print(const CacheSetup& setup);
// All on one line.
std::string Print(const CacheCase& c);
// One operation a line, each line ended.
std::string PrintLines(const CacheCase& c);

// Reads both spellings. Errors: kParse with column (and line, where there are several) and reason.
CacheCase ParseCacheCase(std::string_view text);
// 'A' to 'E'.
char SlotName(int slot);
// Slots that the operation names, in the order of its text.
std::vector<int> NamedSlots(const CacheOp& op);

// Errors: kIllegalCase: a setup that is not defined (layout, head_dim against group, heads), a
// value of an operation that has no text.
void ValidateCacheCase(const CacheCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TRACE_H_
