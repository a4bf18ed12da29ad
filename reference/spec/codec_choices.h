// The table of a profile's fields on which the stored bytes or the values of a format may depend.
// Everything that is said of such a field, where profiles and codec rules are printed, read,
// compared and reported, comes from its row here; what its values do is the format's own
// arithmetic.

#ifndef REFERENCE_SPEC_CODEC_CHOICES_H_
#define REFERENCE_SPEC_CODEC_CHOICES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/format_planes.h"
#include "reference/spec/profile.h"
#include "reference/spec/text.h"

namespace kvcheck {

// What a rule about stored tensors expects where it does not state the field.
enum class LeftOut {
  kDefault,  // the default value
  kLoosest,  // the value with the largest bound
  kAny,      // each of some values; bits are promised only of a stated one
};

enum class ActsOn { kEncoding, kDecoding, kBoth };

struct CodecField {
  CodecChoice choice = CodecChoice::kDecode;
  std::string_view key;      // "mx_encode"
  std::string_view formats;  // whose choice it is, in errors
  LeftOut left_out = LeftOut::kDefault;
  size_t expected = 0;  // of kAny: how many of the values, the first ones
  ActsOn acts_on = ActsOn::kEncoding;

  std::string_view (*value)(const Profile& profile) = nullptr;  // "mlx_0_31"
  // Errors: kParse listing the values.
  void (*parse)(Piece text, Profile* profile) = nullptr;
  void (*copy)(const Profile& from, Profile* to) = nullptr;
  // The profile with each value of the field in turn, in the order of its enum.
  std::vector<Profile> (*variants)(const Profile& profile) = nullptr;

  bool Same(const Profile& a, const Profile& b) const { return value(a) == value(b); }
};

// In the order in which texts have them.
std::span<const CodecField> CodecFields();
const CodecField& FieldOf(CodecChoice choice);
// Null where no row has this key.
const CodecField* FindCodecField(std::string_view key);

// "mx_encode=mlx".
std::string Print(const CodecField& field, const Profile& profile);
// The profile with each value that a rule expects where it leaves the field out.
// Precondition: LeftOut::kAny.
std::vector<Profile> ExpectedVariants(const CodecField& field, const Profile& profile);
// Their values: "ocp, up, mlx, mlx_0_31 or sglang".
std::string ExpectedValues(const CodecField& field);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CODEC_CHOICES_H_
