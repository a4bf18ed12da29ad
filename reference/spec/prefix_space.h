// What an implementation of prefix caches has, as far as drawing cases needs to know it. What a
// space does not say is there.

#ifndef REFERENCE_SPEC_PREFIX_SPACE_H_
#define REFERENCE_SPEC_PREFIX_SPACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/prefix_case.h"

namespace kvcheck {

struct PrefixSpace {
  std::vector<int64_t> blocks;       // block sizes. Empty: every one
  std::vector<DType> x;              // types of vectors. Empty: every one
  std::vector<std::string> formats;  // patterns (glob.h) over formats of k and v. Empty: every one
  bool quantizes = true;             // k and v may be other formats than x
  bool same_dims = false;            // k_dim is v_dim
  bool windows = true;
  bool entries = true;  // the number of kept prompts can be limited
  bool disk = true;
  bool tiers = true;  // it tells which tier a hit comes from
  bool all = true;    // `open` may ask for a hit of the last token
  // Prompts are drawn at least this long: of whoever keeps nothing shorter.
  int64_t least_tokens = 1;
  uint32_t identity = (1u << kIdentityFields) - 1;  // bit per field of PrefixIdentity
  // Bit per PrefixOpKind. What is not there is not drawn.
  uint32_t operations = (1u << kPrefixOpKinds) - 1;
  uint32_t damages = (1u << kFileDamages) - 1;  // bit per FileDamage
  int64_t max_operations = 0;                   // 0: whatever is drawn

  bool Has(PrefixOpKind kind) const { return (operations >> static_cast<int>(kind) & 1u) != 0; }
  bool Has(FileDamage damage) const { return (damages >> static_cast<int>(damage) & 1u) != 0; }
  bool HasSetup(const PrefixSetup& setup) const;
  bool HasOp(const PrefixOp& op) const;
  bool HasCase(const PrefixCase& c) const;

  bool operator==(const PrefixSpace&) const = default;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PREFIX_SPACE_H_
