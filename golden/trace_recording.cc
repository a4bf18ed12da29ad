#include "golden/trace_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

using Status = RecordedAnswer::Status;

constexpr std::array<const char*, 11> kOutputs = {"answers",  "attended", "k",      "kinds",
                                                  "messages", "retained", "rows",   "slots",
                                                  "states",   "v",        "visible"};
// Columns of `states`.
enum StateField : size_t {
  kRows,
  kColumns,
  kQueries,
  kHolds,
  kTellsVisible,
  kTellsRetained,
  kSize,
  kLiveBytes,
  kCapacityBytes,
  kEmpty,
  kTrimmable,
  kPending,
  kFields
};
// Larger numbers cannot be those of a trace: 2^16 rows, 2^20 operations of 2^20 columns.
constexpr int64_t kMostRows = int64_t{1} << 16;
constexpr int64_t kMostColumns = int64_t{1} << 40;

}  // namespace

std::span<const char* const> RecordingOutputs() { return kOutputs; }

// Takes a recording apart; what is left over at the end is as wrong as what is missing.
class TraceRecording::Reader {
 public:
  Reader(const CacheCase& c, const std::string& context, TraceRecording* out)
      : case_(c), context_(context), out_(*out) {}

  void Read() {
    for (const auto& [name, tensor] : out_.outputs_) {
      if (std::find(kOutputs.begin(), kOutputs.end(), name) == kOutputs.end()) {
        Refuse(fmt::format("'{}' is no part of one", name));
      }
    }
    ReadAnswers();
    ReadStates();
    ReadSlots();
    ReadAttended();
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    throw Error(ErrorCode::kUnreadableFile, "not a recording of this trace: " + why, context_);
  }

  // The tensor of this type, with `columns` numbers a row (0: flat).
  const Tensor& Get(const char* name, DType dtype, int64_t columns) const {
    const auto found = out_.outputs_.find(name);
    if (found == out_.outputs_.end()) Refuse(fmt::format("'{}' is missing", name));
    const Tensor& tensor = found->second;
    const auto& axes = tensor.shape.axes;
    const bool fits =
        columns == 0 ? axes.size() == 1 : axes.size() == 2 && axes[1].extent == columns;
    if (tensor.dtype != dtype || !fits ||
        tensor.bytes.size() !=
            static_cast<size_t>(tensor.shape.ElementCount()) * SizeInBytes(dtype)) {
      Refuse(fmt::format("'{}' is {} {}", name, Name(tensor.dtype), ToString(tensor.shape)));
    }
    return tensor;
  }

  // As many numbers as the table has, `columns` a row.
  const int64_t* Table(const char* name, int64_t columns, int64_t* rows) const {
    const Tensor& tensor = Get(name, DType::kInt64, columns);
    *rows = tensor.shape.axes[0].extent;
    return tensor.As<int64_t>();
  }

  std::vector<std::string> Lines(const char* name) const {
    const Tensor& tensor = Get(name, DType::kUInt8, 0);
    std::string_view text(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    std::vector<std::string> lines;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos)
        Refuse(fmt::format("'{}' does not end with its line", name));
      lines.emplace_back(text.substr(0, end));
      const bool prints = std::all_of(lines.back().begin(), lines.back().end(),
                                      [](char ch) { return ch >= ' ' && ch <= '~'; });
      if (!prints) Refuse(fmt::format("'{}' has what is not printable ASCII", name));
      text.remove_prefix(end + 1);
    }
    return lines;
  }

  // Which operations find their slots follows from the answers; what they leave used as well.
  void ReadAnswers() {
    int64_t rows = 0;
    const int64_t* table = Table("answers", 3, &rows);
    std::vector<std::string> messages = Lines("messages");
    const auto operations = static_cast<int64_t>(case_.ops.size());
    if (rows != operations || static_cast<int64_t>(messages.size()) != operations) {
      Refuse(fmt::format("{} answers and {} messages of {} operations", rows, messages.size(),
                         operations));
    }
    for (size_t i = 0; i < case_.ops.size(); ++i) {
      const CacheOp& op = case_.ops[i];
      const int64_t* row = table + 3 * i;
      const int64_t status = row[0];
      if (status < 0 || status > 3) Refuse(fmt::format("operation {}: status {}", i + 1, status));
      RecordedAnswer answer;
      answer.status = static_cast<Status>(status);
      answer.number = row[1];
      if (row[2] < 0 || row[2] > 3) Refuse(fmt::format("operation {}: changed {}", i + 1, row[2]));
      answer.changed_inputs = (row[2] & 1) != 0;
      answer.changed_results = (row[2] & 2) != 0;
      answer.message = std::move(messages[i]);
      const bool idle = IsIdle(op);
      if (idle != (answer.status == Status::kIdle)) {
        Refuse(fmt::format("operation {} {} a slot that is empty", i + 1,
                           idle ? "is answered and names" : "is not answered and does not name"));
      }
      const bool always = op.kind == CacheOpKind::kDrop || op.kind == CacheOpKind::kDamage;
      if (!idle && always && answer.status != Status::kDone) {
        Refuse(fmt::format("operation {} cannot be declined", i + 1));
      }
      if (answer.status == Status::kDone) Use(op);
      used_after_.push_back(used_);
      out_.answers_.push_back(std::move(answer));
    }
  }

  bool IsUsed(int slot) const { return used_[static_cast<size_t>(slot)]; }

  bool IsIdle(const CacheOp& op) const {
    switch (op.kind) {
      case CacheOpKind::kNew:
      case CacheOpKind::kLoad:
        return false;
      case CacheOpKind::kMerge:
        return !std::all_of(op.operands.begin(), op.operands.end(),
                            [&](int slot) { return IsUsed(slot); });
      case CacheOpKind::kDamage:
        return !saved_[static_cast<size_t>(op.key)];
      case CacheOpKind::kExtend:
        return !IsUsed(op.slot) || !IsUsed(op.target);
      default:
        return !IsUsed(op.slot);
    }
  }

  void Use(const CacheOp& op) {
    switch (op.kind) {
      case CacheOpKind::kNew:
        used_[static_cast<size_t>(op.slot)] = true;
        return;
      case CacheOpKind::kMerge:
      case CacheOpKind::kExtract:
      case CacheOpKind::kCopy:
      case CacheOpKind::kLoad:
        used_[static_cast<size_t>(op.target)] = true;
        return;
      case CacheOpKind::kDrop:
        used_[static_cast<size_t>(op.slot)] = false;
        return;
      case CacheOpKind::kSave:
        saved_[static_cast<size_t>(op.key)] = true;
        return;
      default:
        return;
    }
  }

  void ReadSlots() {
    int64_t rows = 0;
    const int64_t* table = Table("slots", kSlots, &rows);
    if (rows != static_cast<int64_t>(case_.ops.size())) Refuse("'slots' has another length");
    for (size_t i = 0; i < case_.ops.size(); ++i) {
      std::array<int64_t, kSlots> slots{};
      for (size_t s = 0; s < kSlots; ++s) {
        slots[s] = table[i * kSlots + s];
        const bool used = slots[s] >= 0 && slots[s] < out_.states();
        if (used != used_after_[i][s] || (!used && slots[s] != -1)) {
          Refuse(fmt::format("after operation {} slot {} shows state {} of {}", i + 1,
                             SlotName(static_cast<int>(s)), slots[s], out_.states()));
        }
      }
      out_.slots_.push_back(slots);
    }
  }

  // The product of numbers that are not negative, if it is at most `most`.
  static std::optional<size_t> Product(std::initializer_list<int64_t> factors, size_t most) {
    size_t product = 1;
    for (int64_t factor : factors) {
      if (factor == 0) return 0;
    }
    for (int64_t factor : factors) {
      const auto f = static_cast<size_t>(factor);
      if (product > most / f) return std::nullopt;
      product *= f;
    }
    return product;
  }

  // The next bytes of a flat tensor, of which `*left` are left.
  std::span<const std::byte> Take(const char* name, std::initializer_list<int64_t> extents,
                                  std::span<const std::byte>* left) const {
    const std::optional<size_t> size = Product(extents, left->size());
    if (!size) Refuse(fmt::format("'{}' ends early", name));
    const std::span<const std::byte> taken = left->first(*size);
    *left = left->subspan(*size);
    return taken;
  }

  std::span<const std::byte> Flat(const char* name, DType dtype) const {
    const Tensor& tensor = Get(name, dtype, 0);
    return {tensor.bytes.data(), tensor.bytes.size()};
  }

  std::vector<uint64_t> TakeBits(const char* name, int64_t bit_rows, int64_t columns,
                                 std::span<const std::byte>* left) const {
    const std::span<const std::byte> taken = Take(name, {bit_rows, columns}, left);
    // A view without columns still has a pointer.
    if (columns == 0) return {0};
    const auto words = static_cast<size_t>((columns + 63) / 64);
    std::vector<uint64_t> bits(static_cast<size_t>(bit_rows) * words);
    for (size_t i = 0; i < taken.size(); ++i) {
      const size_t row = i / static_cast<size_t>(columns);
      const size_t column = i % static_cast<size_t>(columns);
      if (taken[i] != std::byte{0}) bits[row * words + column / 64] |= uint64_t{1} << (column % 64);
    }
    if (bits.empty()) bits.resize(1);
    return bits;
  }

  int64_t InRange(const int64_t* fields, StateField field, int64_t low, int64_t high) const {
    const int64_t value = fields[field];
    if (value < low || value > high) {
      Refuse(fmt::format("number {} of a state is {}", static_cast<size_t>(field), value));
    }
    return value;
  }

  void ReadKind(const std::string& line, RecordedState* state) const {
    const std::vector<Piece> parts = Split(WholeLine(line), ' ');
    if (parts.size() != 3) Refuse(fmt::format("'{}' is no layout and two formats", line));
    try {
      if (parts[0].text != "-") state->layout = ParseCacheLayout(parts[0]);
      state->k = ParseKvFormat(parts[1]);
      state->v = ParseKvFormat(parts[2]);
      CheckTokens(state->k, case_.setup.k_dim, "k");
      CheckTokens(state->v, case_.setup.v_dim, "v");
    } catch (const Error& error) {
      Refuse(error.message());
    }
  }

  void ReadStates() {
    int64_t count = 0;
    const int64_t* table = Table("states", kFields, &count);
    const std::vector<std::string> kinds = Lines("kinds");
    if (static_cast<int64_t>(kinds.size()) != count) Refuse("'kinds' is no line a state");
    int64_t row_count = 0;
    const int64_t* row = Table("rows", 2, &row_count);
    const int64_t* const rows_end = row + 2 * row_count;
    std::span<const std::byte> k = Flat("k", DType::kUInt8);
    std::span<const std::byte> v = Flat("v", DType::kUInt8);
    std::span<const std::byte> visible = Flat("visible", DType::kBool);
    std::span<const std::byte> retained = Flat("retained", DType::kBool);
    constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < count; ++i, table += kFields) {
      RecordedState state;
      ReadKind(kinds[static_cast<size_t>(i)], &state);
      state.rows = InRange(table, kRows, 0, kMostRows);
      state.columns = InRange(table, kColumns, 0, kMostColumns);
      state.queries = InRange(table, kQueries, 0, kMostColumns);
      state.holds = InRange(table, kHolds, 0, 1) == 1;
      state.tells_visible = InRange(table, kTellsVisible, 0, 1) == 1;
      state.tells_retained = InRange(table, kTellsRetained, 0, 1) == 1;
      state.size = InRange(table, kSize, -1, kAny);
      state.live_bytes = InRange(table, kLiveBytes, -1, kAny);
      state.capacity_bytes = InRange(table, kCapacityBytes, -1, kAny);
      state.empty = static_cast<int8_t>(InRange(table, kEmpty, -1, 1));
      state.trimmable = static_cast<int8_t>(InRange(table, kTrimmable, -1, 1));
      state.pending = static_cast<int8_t>(InRange(table, kPending, -1, 1));
      if (!state.holds && (state.columns > 0 || state.tells_visible || state.tells_retained)) {
        Refuse("a state without K and V has columns");
      }
      if (row + 2 * state.rows > rows_end) Refuse("'rows' ends early");
      for (int64_t b = 0; b < state.rows; ++b, row += 2) {
        if (row[0] < -1 || row[1] < -1) Refuse("an offset or a padding is negative");
        state.offsets.push_back(row[0]);
        state.unfed_padding.push_back(row[1]);
      }
      const auto unknown = [](std::vector<int64_t>* numbers) {
        if (std::find(numbers->begin(), numbers->end(), -1) != numbers->end()) numbers->clear();
      };
      unknown(&state.offsets);
      unknown(&state.unfed_padding);
      if (state.holds) {
        state.k_planes = TakePlanes("k", TokenPlanesOf(state.k, case_.setup.k_dim), state, &k);
        state.v_planes = TakePlanes("v", TokenPlanesOf(state.v, case_.setup.v_dim), state, &v);
      }
      if (state.tells_visible) {
        const std::optional<size_t> bit_rows =
            Product({state.rows, state.queries}, static_cast<size_t>(kMostColumns));
        if (!bit_rows) Refuse("'visible' ends early");
        state.visible =
            TakeBits("visible", static_cast<int64_t>(*bit_rows), state.columns, &visible);
      }
      if (state.tells_retained) {
        state.retained = TakeBits("retained", state.rows, state.columns, &retained);
      }
      out_.states_.push_back(std::move(state));
    }
    if (!k.empty() || !v.empty() || !visible.empty() || !retained.empty() || row != rows_end) {
      Refuse("its states do not use up what is stored");
    }
  }

  RecordedPlanes TakePlanes(const char* name, const Planes& planes, const RecordedState& state,
                            std::span<const std::byte>* left) const {
    RecordedPlanes taken;
    for (size_t i = 0; i < planes.size(); ++i) {
      const auto bytes = static_cast<int64_t>(planes[i].Bytes());
      taken[i] = planes[i].scope == PlaneScope::kTensor
                     ? Take(name, {bytes}, left)
                     : Take(name, {state.rows, case_.setup.kv_heads, state.columns, bytes}, left);
    }
    return taken;
  }

  void ReadAttended() {
    std::span<const std::byte> left = Flat("attended", DType::kUInt8);
    const CacheSetup& setup = case_.setup;
    for (size_t i = 0; i < case_.ops.size(); ++i) {
      RecordedAnswer& answer = out_.answers_[i];
      const CacheOp& op = case_.ops[i];
      if (op.kind != CacheOpKind::kAttend || answer.status != Status::kDone) continue;
      const RecordedState& state = *out_.State(static_cast<int64_t>(i), op.slot);
      answer.attended = Take("attended",
                             {state.rows, setup.query_heads, state.queries, setup.v_dim,
                              static_cast<int64_t>(SizeInBytes(setup.x))},
                             &left);
    }
    if (!left.empty()) Refuse("'attended' goes on behind the last attend");
  }

  const CacheCase& case_;
  const std::string& context_;
  TraceRecording& out_;
  std::array<bool, kSlots> used_{};
  std::array<bool, kStateKeys> saved_{};
  std::vector<std::array<bool, kSlots>> used_after_;
};

TraceRecording::TraceRecording(const CacheCase& c, TensorMap outputs, const std::string& context)
    : outputs_(std::move(outputs)) {
  Reader(c, context, this).Read();
}

const RecordedState* TraceRecording::State(int64_t operation, int slot) const {
  const int64_t state = slots_[static_cast<size_t>(operation)][static_cast<size_t>(slot)];
  return state < 0 ? nullptr : &states_[static_cast<size_t>(state)];
}

}  // namespace kvcheck
