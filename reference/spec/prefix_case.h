// The case kind `prefix`: what a server does with caches across requests, as operations on named
// requests. What the operations must do is reference/prefix/contract.md; grammar:
// reference/README.md, 3.9.
//
// Semantics are total. An operation that names a request which is not open does nothing; a target
// that is open is closed first, without being kept; a call that the contract forbids is part of the
// language: whoever runs it must refuse and change nothing.
//
// Two spellings with one meaning: one operation a line, or all on one line with "; " between.

#ifndef REFERENCE_SPEC_PREFIX_CASE_H_
#define REFERENCE_SPEC_PREFIX_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/data_source.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Whose prompt it is: what differs in any field must not share, what agrees in all must. A field
// that is not set says that the request has none, which an empty text does not.
struct PrefixIdentity {
  std::optional<std::string> model;    // and its revision
  std::optional<std::string> salt;     // of a tenant
  std::optional<std::string> adapter;  // its name
  int64_t version = 0;                 // of the adapter's weights, of the same name
  std::optional<std::string> image;    // digest of what the prompt has beside tokens
  bool operator==(const PrefixIdentity&) const = default;
};
inline constexpr int kIdentityFields = 5;
// "model", "salt", "adapter", "version", "image".
std::string_view IdentityField(int field);
// Whether the field says something.
bool HasField(const PrefixIdentity& who, int field);
// "model=a salt=b"; "nobody" where no field is set. Bytes other than letters, digits and ._-/@:
// are %XX.
std::string Print(const PrefixIdentity& who);

// Token ids, as runs: 7, 7x40 (40 times), r3:1024 (ids below 2^17 drawn from the seed 3).
struct TokenRun {
  int64_t value = 0;  // the id, or the seed
  int64_t count = 1;
  bool drawn = false;
  bool operator==(const TokenRun&) const = default;
};
using TokenRuns = std::vector<TokenRun>;
std::string Print(const TokenRuns& runs);
std::vector<int32_t> Expand(const TokenRuns& runs);
// Ids one by one; equal neighbours as one run.
TokenRuns RunsOf(const std::vector<int32_t>& tokens);

struct PrefixSetup {
  int64_t block_tokens = 4;  // wished; an implementation says what it has
  int64_t capacity_tokens = 64;
  int64_t max_entries = 0;  // 0: any number
  int64_t layers = 2;
  int64_t kv_heads = 1;
  int64_t k_dim = 32;
  int64_t v_dim = 32;
  DType x = DType::kFloat32;  // in which K and V are computed and read
  // How kept rows are stored: x itself where not set.
  std::optional<KvFormat> k;
  std::optional<KvFormat> v;
  int64_t quantize_from = 0;  // prompts of fewer tokens are kept as they are
  int64_t window = 0;  // layers 1, 3, 5, ...: a query sees the newest `window` tokens; 0: all
  bool disk = false;   // a second tier, in a folder
  Observe observe = Observe::kEach;
  DataSource data;  // tokens:SEED
  bool operator==(const PrefixSetup&) const = default;

  KvFormat K() const { return k ? *k : KvFormat(PlainFormat{x}); }
  KvFormat V() const { return v ? *v : KvFormat(PlainFormat{x}); }
  bool HasWindow(int64_t layer) const { return window > 0 && layer % 2 == 1; }
};

enum class PrefixOpKind : uint8_t {
  kOpen,     // open A 0,1,1x4 salt=a from=disk
  kWrite,    // write A 3
  kRead,     // read A
  kClose,    // close A keep
  kFork,     // fork A -> B
  kTrimTo,   // trim_to A 5
  kEvict,    // evict 8
  kClear,    // clear
  kEpoch,    // epoch
  kSettle,   // settle
  kSave,     // save s0
  kLoad,     // load s0
  kRestart,  // restart
  kDamage,   // damage flip at=13
  kObserve,  // observe
};
inline constexpr int kPrefixOpKinds = 15;
// "open", "trim_to", ...
std::string_view Name(PrefixOpKind kind);

enum class PrefixTier : uint8_t { kMemory, kDisk };
inline constexpr int kPrefixTiers = 2;
std::string_view Name(PrefixTier tier);

// What is wrong with the vectors of an illegal write.
enum class WrongVectors : uint8_t { kNothing, kLayers, kHeads, kKDim, kVDim, kType };
inline constexpr int kWrongVectors = 5;  // beside kNothing

// What is done to the files of the folder.
enum class FileDamage : uint8_t {
  kCut,      // a file ends at a byte
  kFlip,     // one bit is another
  kSwap,     // two files have changed names
  kCopy,     // a file stands in the place of another one
  kForeign,  // a file holds something else
};
inline constexpr int kFileDamages = 5;
std::string_view Name(FileDamage damage);

inline constexpr int kRequests = 8;     // A..H
inline constexpr int kSavedStores = 4;  // s0..s3

struct PrefixOp {
  PrefixOpKind kind = PrefixOpKind::kOpen;
  int request = 0;
  int target = 0;  // of fork
  int key = 0;     // of save, load
  // Of open the prompt; of write what follows after it.
  TokenRuns tokens;
  PrefixIdentity who;              // of open
  bool all = false;                // of open: the last token may hit too
  std::optional<PrefixTier> from;  // of open: where a hit has to come from
  // Of write: tokens of the prompt, the rest where not set; of trim_to tokens to have; of evict
  // tokens to make room for.
  std::optional<int64_t> count;
  bool keep = false;  // of close
  WrongVectors wrong = WrongVectors::kNothing;
  // Of close, evict, clear, epoch, settle and save: the process is killed at this write to the
  // folder while it does that, the first being 1, and starts again on the folder.
  int64_t kill = 0;
  FileDamage damage = FileDamage::kCut;
  int64_t at = 0;                       // of damage: file and byte, modulo what there is
  std::optional<int64_t> block_tokens;  // of restart, from there on
  std::optional<DType> x;               // of restart, from there on
  bool killed = false;                  // of restart: without an orderly end
  bool operator==(const PrefixOp&) const = default;
};

struct PrefixCase {
  PrefixSetup setup;
  std::vector<PrefixOp> ops;
  bool operator==(const PrefixCase&) const = default;
};

char RequestName(int request);  // 'A' to 'H'
// Requests that the operation names, in the order of its text.
std::vector<int> NamedRequests(const PrefixOp& op);
// Whether `kill` may be said of it.
bool MayBeKilled(PrefixOpKind kind);

std::string Print(const PrefixOp& op);
std::string Print(const PrefixSetup& setup);
std::string Print(const PrefixCase& c);
std::string PrintLines(const PrefixCase& c);
// Errors: kParse with column (and line, where there are several) and reason.
PrefixCase ParsePrefixCase(std::string_view text);
// Errors: kIllegalCase.
void ValidatePrefixCase(const PrefixCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PREFIX_CASE_H_
