// What a family of storage formats computes: the one interface behind codec.h, error_bound.h and
// codec_tiles.h. A family has a class in a file of its own and an overload of MakeArithmetic; a
// family without one does not compile.

#ifndef REFERENCE_FORMATS_FORMAT_ARITHMETIC_H_
#define REFERENCE_FORMATS_FORMAT_ARITHMETIC_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/formats/stored_basis.h"
#include "reference/spec/declared_change.h"
#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Bytes of one row, a pointer per plane in the order of PlanesOf.
using RowPlanes = std::span<std::byte* const>;
using RowPlanesView = std::span<const std::byte* const>;

// Rows of one format, profile and head_dim; keeps its memory from row to row.
class RowArithmetic {
 public:
  virtual ~RowArithmetic() = default;
  // x (head_dim), of any float type: rounded to the row type, then encoded.
  virtual void Encode(std::span<const double> x, RowPlanes stored) = 0;
  // The stored real numbers as unevaluated sums hi + lo. lo empty: to the nearest double alone.
  virtual void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) = 0;
  // Of formats that rotate rows, before they are rotated back, within 2^-50 of the real numbers.
  // Precondition: the format's Basis is not empty.
  virtual void DecodeInBasis(RowPlanesView stored, std::span<double> out);
  // Values of the row type, rounded as the profile's `decode` says.
  virtual void DecodeToRowType(RowPlanesView stored, std::span<double> out) = 0;
  // Code, scale and bias of formats with a grid: codes (head_dim), scales and biases (groups).
  virtual void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                         std::span<double> biases);
};

// Bounds of one row; see RoundTripBound in error_bound.h.
struct RowBound {
  std::vector<double> total;               // per element
  std::vector<std::vector<double>> terms;  // [term][element], as BoundTerms
  // Why no bound exists, per element: something in its group or value is not finite, or may
  // overflow on the way. total is then infinite and the terms are zero.
  std::vector<bool> overflows;
  // Of these, elements that have no defined value: NaN and infinity do not survive a coded format,
  // and take their group with them where its arithmetic does.
  std::vector<bool> undefined;
  // How near to x the value of another code than the nearest one may come, per element: where the
  // bound is smaller, choosing a wrong code would show. 0 where nothing is known.
  std::vector<double> wrong_code;
};

// How a row comes and is read.
struct RoundTripQuestion {
  const Profile& profile;
  DecodeRounding decode = DecodeRounding::kExact;  // kExact: the stored real number itself
  DType given = DType::kFloat32;                   // type of x
  std::optional<DType> read;                       // type in which the value is written out
};

// Indices into OutputInfo::reasons, whose texts are CodecReasons().
enum CodecReason {
  kNanCode,
  kInfiniteGroup,
  kGpuNotFinite,
  kUnsignedZero,
  kNanSign,
  kNotFinite,
  kCodecOverflow,
  kNotFiniteBlock,
  kBlockWithoutScale,
  kSignOfZeroScale,
  kSignOfZeroMinimum,
  kRangeBeyondFloat,
  kScaleBetweenHalves,
  kScaleOfZeros,
  kApproximateReciprocal,
  kNearThreshold,
  kNearHalfNorm,
  kNormNotFinite,
  kNearZeroProjection,
  kNearHalfResidual,
  kReciprocalUnit,
  kGroupNotFinite
};

// A profile of which the format's values depend otherwise than on a given one.
struct ProfileChange {
  Profile profile;
};
// What differs. A word is a default where the field has it or, of a rule that states some, where it
// is not stated.
DeclaredChange ChangeOf(const Profile& declared, const Profile& other,
                        const std::optional<CodecChoiceSet>& stated = {});

// An order in which some store a plane: the bytes of `rows` rows in turn are permuted among them.
struct PlaneOrder {
  std::string name;  // of what is to be read so
  std::string text;
  size_t plane = 0;
  int64_t rows = 1;
  // linear, stored: of the rows of one group, row by row.
  std::function<void(std::span<const std::byte> linear, std::span<std::byte> stored)> permute;
};

class FormatArithmetic;

// Who else may have stored rows in the same planes, where nothing in them says who.
struct OtherWriter {
  std::string name;  // what differs: "the signs of seed 1"; of several changes joined by " and "
  std::string text;  // "these bytes are turboquant:4:g64:s1:f32, with the signs of seed 1"
  std::shared_ptr<const FormatArithmetic> arithmetic;
};

class FormatArithmetic {
 public:
  virtual ~FormatArithmetic() = default;
  virtual std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile,
                                                  int64_t head_dim) const = 0;
  // The basis in which rows of head_dim channels are stored.
  virtual StoredBasis Basis(int64_t head_dim) const;
  // Names of the terms of a bound.
  virtual std::vector<std::string> Terms() const = 0;
  // *bound: sized for x, all zero.
  virtual void Bound(const RoundTripQuestion& question, std::span<const double> x,
                     RowBound* bound) const = 0;
  // |code scale| + |bias| of each element before it is encoded, where the format has a grid; total:
  // of Bound under decode=exact, infinite where there is none.
  virtual std::vector<double> Parts(const Profile& profile, std::span<const double> x,
                                    std::vector<double> total) const;
  // Whether the bound of these rows is the same under both profiles, for certain.
  virtual bool SameBound(const Profile& a, const Profile& b, std::span<const double> x) const;
  // Profiles with other values of the fields that the format leaves open, fewest changes first.
  virtual std::vector<ProfileChange> OtherProfiles(const Profile& profile) const = 0;
  // The profiles that a rule about stored tensors leaves open, each of which must be allowed for.
  virtual std::vector<Profile> UndeclaredEncoders(const Profile& profile) const;
  // Orders of so many rows of head_dim channels that are in use beside the format's own, or that
  // writers were seen to make by mistake.
  virtual std::vector<PlaneOrder> OtherOrders(int64_t head_dim, int64_t rows) const;
  // Those that are known, fewest changes first.
  virtual std::vector<OtherWriter> OtherWriters() const;
  // What encoding leaves open in the stored planes of the rows x: alternatives of tiles[plane].
  virtual void AddAlternatives(const Profile& profile, std::span<const double> x,
                               std::vector<ExpectedTile>* tiles) const = 0;
  // The same where x are rows of row_elements each, which not every family finds out by itself.
  virtual void AddTileAlternatives(const Profile& profile, std::span<const double> x,
                                   int64_t row_elements, std::vector<ExpectedTile>* tiles) const;
  // Whether a decoder may take the sums of a row in another order than DecodeToRowType, and how far
  // each element of the row `y` that it gives may then be off.
  virtual bool LeavesDecodeOpen(const Profile& profile) const;
  virtual void DecodeBound(const Profile& profile, RowPlanesView stored, std::span<const double> y,
                           std::span<double> bound) const;
  // What is promised of a row (row of tile) whose bound is this: its standing, and what takes the
  // place of a bound where there is none.
  virtual void SetStanding(const RoundTripQuestion& question, std::span<const double> x,
                           const RowBound& bound, size_t row, ExpectedTile* tile) const;
};

std::unique_ptr<FormatArithmetic> MakeArithmetic(const PlainFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const AffineFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q8_0Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_0Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_1Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q5_0Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q5_1Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Iq4NlFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const MxFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Nvfp4Format& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const SplitTurboquantFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const TurboquantProdFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const TurboquantFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const RotatedFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const ScaledFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const Int4zpFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const UniformFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const ChannelFormat& format);
std::unique_ptr<FormatArithmetic> MakeArithmetic(const ResidualAffineFormat& format);

std::unique_ptr<FormatArithmetic> ArithmeticOf(const KvFormat& format);

// The other values of a profile's field, but for those named in `without`, as changes.
void AddChanges(const Profile& profile, CodecChoice choice, std::vector<ProfileChange>* changes,
                std::initializer_list<std::string_view> without = {});

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_FORMAT_ARITHMETIC_H_
