// Rows of a codec's answer as tiles: what is expected of encoded rows, and of rows that were stored
// and read back. Shared by codec cases (codec_source.h) and by stored tensors under a codec rule
// (stored_codec_source.h), so that each claim is written once.

#ifndef REFERENCE_FORMATS_CODEC_TILES_H_
#define REFERENCE_FORMATS_CODEC_TILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Texts of CodecReason.
const std::vector<std::string>& CodecReasons();

// Profiles of which the format's values depend otherwise than on `profile`, fewest changes first.
std::vector<ProfileChange> OtherCodecProfiles(const KvFormat& format, const Profile& profile);

// Rows in the order of a tensor's memory, of about 2^16 elements a tile.
int64_t CodecRowsPerTile(int64_t head_dim);

// What is promised of rows that are stored and read back.
struct RoundTripClaim {
  KvFormat format;
  // Declared conventions, the bound being the largest under any of them. decode is as
  // RoundTripBound takes it.
  std::vector<Profile> profiles;
  DType given = DType::kFloat32;  // type of the original rows
  std::optional<DType> read;      // as RoundTripBound takes it
  // Whether a wrong code is named as the least fault (ExpectedTile::least_fault).
  bool names_wrong_codes = false;
};

// The tile of rows x, (rows, head_dim) of them, without its place. place: of the rows among those
// of a tensor.
ExpectedTile RoundTripTile(const RoundTripClaim& claim, std::vector<double> x, int64_t head_dim,
                           bool terms, const RowPlace& place);

// The tiles of encoded rows, without their place and output, one per plane of PlaneScope::kRow.
// x: (rows, head_dim), of any float type; parameters: as EncodeRows.
std::vector<ExpectedTile> EncodedTiles(const KvFormat& format, const Profile& profile,
                                       const Tensor& x, const TensorMap& parameters,
                                       const RowPlace& place);

// Rows x as another writer stores them: in planes like the format's, as tensors and as tiles like
// those of EncodedTiles.
struct WrittenRows {
  TensorMap planes;
  std::vector<ExpectedTile> tiles;
};
WrittenRows WriteAs(const FormatArithmetic& writer, const KvFormat& format, const Profile& profile,
                    const Tensor& x);
// What another writer reads from stored rows [first, first + count) of the planes, and how far it
// may be off: as DecodeToRowType and DecodeFreedom.
struct ReadRowsAs {
  std::vector<double> values;
  std::vector<double> bound;
};
ReadRowsAs ReadAs(const FormatArithmetic& writer, const KvFormat& format, const Profile& profile,
                  const TensorMap& planes, int64_t first, int64_t count);

// Whether rows tell the format from one of `writers` others: their codes differ in so many elements
// that a wrong answer agrees with some other writer in all of them by chance with 2^-20 at most,
// where it agrees in each with 1/2: in rows that are not alike, and in no more elements than
// channels of a block are not 0 throughout, since the signs of the others change nothing.
// rows(first, count) gives some of row_count rows.
bool TellApart(const KvFormat& format, const FormatArithmetic& writer, size_t writers,
               const Profile& profile, int64_t row_count,
               const std::function<Tensor(int64_t first, int64_t count)>& rows);

// Rows as those of another writer of the format, of so many: the readings of each. as(writer,
// writers) gives what is then expected, null where rows do not tell.
using SourceOfWriter =
    std::function<std::shared_ptr<const ExpectedSource>(const OtherWriter&, size_t writers)>;
std::vector<OtherReading> WriterReadings(const KvFormat& format, const SourceOfWriter& as);

// Whether an element that is this may also be that.
bool Allows(const Alternative& alternative, double expected, double got);

// Rows [first, end) that hold all groups of an order of which rows [first_row, first_row + count)
// are a part; a last group that is not whole keeps its own order.
struct RowRange {
  int64_t first = 0;
  int64_t end = 0;
};
RowRange OrderedRange(const PlaneOrder& order, int64_t first_row, int64_t count, int64_t rows);
// Puts the rows of a plane in that order. plane begins with a group.
void Reorder(const PlaneOrder& order, Tensor* plane);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_CODEC_TILES_H_
