// How the K or V vector of one token and one head is stored: a variant of families, each in a file
// of its own, whose members are what everything but arithmetic goes by (texts, planes, blocks,
// shrinking). Arithmetic is in reference/formats.

#ifndef REFERENCE_SPEC_KV_FORMAT_H_
#define REFERENCE_SPEC_KV_FORMAT_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/rotated_format.h"
#include "reference/spec/text.h"

namespace kvcheck {

template <typename Unrotated>
struct WithRotation;
template <typename... Family>
struct WithRotation<std::variant<Family...>> {
  using Type = std::variant<Family..., RotatedFormat>;
};
// The families of UnrotatedFormat (rotated_format.h), and their rotation.
using KvFormat = WithRotation<UnrotatedFormat>::Type;

// What a family states about itself.
template <typename F>
concept FormatFamily = requires(const F& format, Piece piece, const std::vector<Piece>& parts,
                                bool* has_row_type, DType type, int64_t head_dim) {
  // How its texts are written, for messages; the words with which they begin.
  { F::Grammar() } -> std::convertible_to<std::string_view>;
  { F::Names() } -> std::convertible_to<std::string_view>;
  // nullopt where the text begins like none of the family; refused where it goes on wrongly. parts:
  // of the text, between colons. *has_row_type: whether the text says the type of rows; null: it
  // has to.
  { F::Parse(piece, parts, has_row_type) } -> std::same_as<std::optional<F>>;
  // Every one; of a family with a seed, or a number of tokens, some of each kind.
  { F::All() } -> std::same_as<std::vector<F>>;
  // Is one of All(), or differs from one by a number of its text (a static scale).
  { format.Exists() } -> std::same_as<bool>;
  { format.Text() } -> std::same_as<std::string>;
  // The codec without parameters of layout and type: "affine:4", "plain", "fp8".
  { format.Kind() } -> std::same_as<std::string>;
  // Consecutive channels that share something, which head_dim is a multiple of.
  { format.Block() } -> std::same_as<int64_t>;
  // Rows are rounded to it before they are encoded, and decoded to it.
  { format.RowType() } -> std::same_as<DType>;
  { format.WithRowType(type) } -> std::same_as<F>;  // itself where the type is no parameter
  // Rows up to its largest finite value are stored as finite values.
  { format.RangeType() } -> std::same_as<DType>;
  { format.PlanesOf(head_dim) } -> std::same_as<Planes>;
  { format.Grid() } -> std::same_as<std::optional<CodeGrid>>;
  // Whether RotatedFormat may store rotated rows in it: coded rows whose f32 values no decoder
  // reads otherwise.
  { format.MayBeRotated() } -> std::same_as<bool>;
  // Whether stored bytes or values depend on this field of the profile.
  { format.Leaves(CodecChoice::kDecode) } -> std::same_as<bool>;
  // Order of simplicity for shrinking, and the formats to try in its place.
  { format.Rank() } -> std::same_as<int64_t>;
  { format.Simpler() } -> std::same_as<std::vector<F>>;
};

std::string Print(const KvFormat& format);
// Whether the format is one of its family: a struct may hold numbers that no text has.
bool Exists(const KvFormat& format);
// Errors: kParse with the column of what is not a format.
KvFormat ParseKvFormat(Piece piece);
// The same, and a format without its type of rows ("affine:4:g64"): *has_row_type says whether the
// text names one; else it is f32.
KvFormat ParseKvFormat(Piece piece, bool* has_row_type);

// Whether rows are stored as their elements, so that any type of rows may be read back.
bool IsPlain(const KvFormat& format);
std::string KindOf(const KvFormat& format);
// The type in which a decoded row is given.
DType RowDType(const KvFormat& format);
DType RangeDType(const KvFormat& format);
KvFormat WithRowType(const KvFormat& format, DType type);
int64_t BlockOf(const KvFormat& format);
// Heads of K or V that the format's text names one by one; 1: any number, stored alike.
int64_t HeadsOf(const KvFormat& format);
// How the rows of one head are stored: a format of one head, itself where heads are stored alike.
KvFormat FormatOfHead(const KvFormat& format, int64_t head);
// Errors: kIllegalCase where the format names other heads than there are.
void CheckHeads(const KvFormat& format, int64_t kv_heads, const std::string& context);
// Whether caches alone have the format: what it stores of a row depends on how many tokens follow
// (token_groups.h).
bool IsOfCachesAlone(const KvFormat& format);
// Whether rows of head_dim channels, by themselves, are stored in it: they consist of whole blocks,
// and the format is not of caches alone.
bool FitsHeadDim(const KvFormat& format, int64_t head_dim);
// Of one token where the format is of caches alone. Precondition: whole blocks.
Planes PlanesOf(const KvFormat& format, int64_t head_dim);
// nullopt where a value is no code * scale + bias.
std::optional<CodeGrid> GridOf(const KvFormat& format);
bool Leaves(const KvFormat& format, CodecChoice choice);
int64_t RankOf(const KvFormat& format);
std::vector<KvFormat> SimplerFormats(const KvFormat& format);
// Of all planes, in their order.
std::vector<std::string> PlaneNames(const KvFormat& format);
// Those of every format, each once.
std::vector<std::string> AllPlaneNames();
// The tensor of a plane of rows that are called `name` ("k"): "k" of a plain format, "k_codes".
std::string PlaneTensor(const KvFormat& format, const std::string& name, const Plane& plane);

// Errors: kIllegalCase when head_dim is not a multiple of the format's block, for a format of
// caches alone, and for one built in code that does not exist.
void CheckHeadDim(const KvFormat& format, int64_t head_dim, const std::string& context);

// The formats of this build, for drawing, coverage lists and tests: FormatFamily::All(), of rows
// and pages; those that caches alone have; and both.
std::vector<KvFormat> AllKvFormats();
std::vector<KvFormat> FormatsOfCachesAlone();
std::vector<KvFormat> ListedKvFormats();

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_KV_FORMAT_H_
