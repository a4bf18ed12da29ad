// What an implementation of caches has, as far as drawing cases needs to know it: layouts, formats,
// types, batches, operations. One space describes cases any part of which goes with any other; an
// implementation that has two kinds of caches states two. What a space does not say is there.

#ifndef REFERENCE_SPEC_CACHE_SPACE_H_
#define REFERENCE_SPEC_CACHE_SPACE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Whether one of the patterns, or an empty list of them, means the format. One with a residual is
// meant by a pattern that says so (`affine:*:r*`), or by `*`: `affine:*` is older than residuals.
bool NamesCacheFormat(const std::vector<std::string>& patterns, const KvFormat& format);

enum class SpaceRows : uint8_t {
  kAny,
  kSingle,  // no cache has more than one row
  kBatch,   // every cache is made as a batch
};

struct CacheSpace {
  // Patterns (glob.h) over the kinds of layouts: linear, linear:w, ring, ring:keep, chunk.
  // Empty: every one.
  std::vector<std::string> layouts;
  // Patterns over the texts of CacheFormats() (NamesCacheFormat), of K and of V. Empty: every one;
  // beside pairs none.
  std::vector<std::string> formats;
  // Pairs (K, V) of different formats that a cache can have, beside those of `formats`. Where there
  // are any, K and V have the same format in every other cache.
  std::vector<std::pair<KvFormat, KvFormat>> pairs;
  bool same_format = false;      // K and V are stored in one format
  bool stored_as_given = false;  // a plain format is the type of the appended vectors
  bool scales_as_given = false;  // the scale type of an affine format is that of the vectors
  std::vector<DType> x;          // types of appended vectors. Empty: every one
  SpaceRows rows = SpaceRows::kAny;
  bool padding = true;      // `new` takes left padding
  bool same_dims = false;   // k_dim is v_dim
  bool grouped = true;      // more query heads than key/value heads
  bool empty_batch = true;  // caches without rows
  bool window = true;       // `attend` takes a window
  bool sinks = true;        // `attend` takes sinks
  // Bit per CacheOpKind. What is not there is not drawn.
  uint32_t operations = (1u << kCacheOpKinds) - 1;
  uint32_t damages = (1u << kDamageKinds) - 1;  // bit per Damage

  bool Has(CacheOpKind kind) const { return (operations >> static_cast<int>(kind) & 1u) != 0; }
  bool Has(Damage damage) const { return (damages >> static_cast<int>(damage) & 1u) != 0; }
  // Whether a cache of these formats is there for vectors of type x.
  bool HasFormats(DType type, const KvFormat& k, const KvFormat& v) const;
  // Whether vectors of type x can be stored in the format, of K or of V, beside some other.
  bool HasFormat(DType type, const KvFormat& format) const;

  bool operator==(const CacheSpace&) const = default;
};

// For messages: "layouts linear, ring; formats f16; x f16; rows single; without padding; operations
// new, append". "everything" where nothing is left out.
std::string Describe(const CacheSpace& space);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CACHE_SPACE_H_
