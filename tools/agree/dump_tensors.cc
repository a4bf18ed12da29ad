// Logits in a file of tensors: whole rows, or the most likely tokens and the log of the sum. A file
// of one tensor, as numpy's, has whole rows.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "golden/tensor_file.h"
#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/measures.h"

namespace kvcheck {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

class TensorLogits : public LogitsDump {
 public:
  explicit TensorLogits(const std::string& path)
      : LogitsDump(path), source_(OpenTensorFile(path, OpenArchive)), file_(*source_) {
    const auto& objects = file_.index().objects;
    whole_ = objects.count("/topk_logits") == 0;
    name_ = whole_ ? WholeName() : "/topk_logits";
    const std::vector<int64_t> rows = Matrix(name_);
    positions_ = rows[0];
    width_ = rows[1];
    if (!whole_) {
      if (Integers("/topk_ids", 2) != rows) {
        Refuse("topk_ids and topk_logits have other extents");
      }
      const ObjectRecord& lse = DatasetRecord(file_, "/lse");
      if (ExtentsOf(lse, 1) != std::vector<int64_t>{positions_} || !IsReal(lse.dtype)) {
        Refuse("lse is one real number per position");
      }
    }
    if (objects.count("/next") > 0) {
      if (Integers("/next", 1)[0] != positions_) Refuse("next is one token per position");
      has_next_ = true;
    }
    ReadError();
  }

  std::optional<int64_t> Positions() const override { return positions_; }

  std::string Description() const override {
    return fmt::format("tensors, {} positions of {}{} tokens", positions_,
                       whole_ ? "" : "the most likely ", width_);
  }

 protected:
  bool Next(TokenDistribution* position) override {
    if (at() == positions_) return false;
    position->complete = whole_;
    position->error = error_;
    position->error_is_stated = true;
    position->rounding = position->sum_error = 0;
    position->unlisted = -kNoFloor;
    position->floor = kNoFloor;
    std::vector<double>& log_p = position->log_p;
    log_p = Numbers(name_, at() * width_, width_);
    if (whole_) {
      position->tokens.clear();
      const double stored = RoundingOf(name_, log_p, position);
      const double lse = LogSumExp(log_p);
      // Numbers that are each off by r have a sum of exponentials whose log is off by r at most.
      // Then of the sum and of a difference, in double.
      position->rounding = 2 * stored + std::fabs(lse) * 0x1p-52;
      position->shift = lse;
      Subtract(lse, &log_p);
    } else {
      position->tokens.resize(log_p.size());
      TakeTopTokens(position);
    }
    position->text.reset();
    position->next.reset();
    if (has_next_) {
      const auto next = static_cast<int64_t>(Numbers("/next", at(), 1).front());
      if (next < -1 || (whole_ && next >= width_)) {
        Unreadable(fmt::format("next is {}, which is no token, and -1 where none is known", next));
      }
      if (next >= 0) position->next = next;
    }
    return true;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kMissingData, what, file_.path());
  }
  [[noreturn]] void Unreadable(const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("position {}: {}", at(), what), path());
  }
  static bool IsReal(DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
           dtype == DType::kBFloat16;
  }
  // `logits`, or the only tensor that there is.
  std::string WholeName() const {
    if (file_.index().objects.count("/logits") > 0) return "/logits";
    const std::vector<ListedTensor> tensors = ListTensors(file_.index());
    if (tensors.size() == 1) return tensors.front().path;
    Refuse("it has neither `logits` (positions, vocabulary) nor `topk_logits` (positions, k)");
  }
  // Without leading axes of extent 1, as of a batch of one: `rank` of them at least are left.
  static std::vector<int64_t> ExtentsOf(const ObjectRecord& record, size_t rank) {
    std::vector<int64_t> extents;
    for (const Axis& axis : record.shape.axes) extents.push_back(axis.extent);
    while (extents.size() > rank && extents.front() == 1) extents.erase(extents.begin());
    return extents;
  }
  std::vector<int64_t> Matrix(const std::string& name) const {
    const ObjectRecord& record = DatasetRecord(file_, name);
    std::vector<int64_t> extents = ExtentsOf(record, 2);
    if (extents.size() == 3 && IsReal(record.dtype)) {
      Refuse(
          fmt::format("{} is of a batch of {} rows, of which padding is not told apart: save "
                      "each row (positions, vocabulary) as a file of its own, or all that are "
                      "of a text one behind the other",
                      name.substr(1), extents[0]));
    }
    if (extents.size() != 2 || !IsReal(record.dtype) || extents[1] < 1) {
      Refuse(fmt::format("{} is {} {}: a matrix of real numbers is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape)));
    }
    return extents;
  }
  std::vector<int64_t> Integers(const std::string& name, size_t rank) const {
    const ObjectRecord& record = DatasetRecord(file_, name);
    std::vector<int64_t> extents = ExtentsOf(record, rank);
    if (extents.size() != rank ||
        (record.dtype != DType::kInt32 && record.dtype != DType::kInt64)) {
      Refuse(fmt::format("{} is {} {}: {} of i32 or i64 is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape),
                         rank == 1 ? "a row" : "a matrix"));
    }
    return extents;
  }
  void ReadError() {
    const auto& attributes = file_.index().objects.at("/").attributes;
    const auto found = attributes.find("metadata.error");
    if (found == attributes.end()) return;
    const std::string* text = std::get_if<std::string>(&found->second);
    const char* end = text == nullptr ? nullptr : text->data() + text->size();
    const auto read = text == nullptr ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                                      : std::from_chars(text->data(), end, error_);
    if (read.ec != std::errc() || read.ptr != end || !(error_ >= 0) || !std::isfinite(error_)) {
      Refuse("its metadata `error` is no number from 0");
    }
  }
  std::vector<double> Numbers(const std::string& name, int64_t first, int64_t count) {
    const DType dtype = DatasetRecord(file_, name).dtype;
    const auto size = static_cast<size_t>(count);
    Tensor block(dtype, Shape::Unnamed({count}));
    file_.ReadElements(name, first, count, block.bytes.data());
    std::vector<double> values(size);
    DecodeTo(block, 0, values);
    return values;
  }
  static void Subtract(double lse, std::vector<double>* logits) {
    for (double& value : *logits) value -= lse;
  }
  // How far the tensor's type may hold any of these numbers of it off what was computed; sets the
  // units of the position.
  double RoundingOf(const std::string& name, const std::vector<double>& stored,
                    TokenDistribution* position) const {
    const DType dtype = DatasetRecord(file_, name).dtype;
    position->unit = UnitRoundoff(dtype);
    position->least_unit = HalfSmallestSubnormal(dtype);
    double largest = 0;
    for (const double value : stored) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    }
    return position->unit * largest + position->least_unit;
  }
  // position->log_p: logits, as stored.
  void TakeTopTokens(TokenDistribution* position) {
    const double lse = Numbers("/lse", at(), 1).front();
    if (!std::isfinite(lse)) Unreadable(fmt::format("lse is {}", lse));
    // As far as the types of the file can hold both, and an engine its sum.
    position->rounding = RoundingOf(name_, position->log_p, position) +
                         std::fabs(lse) * UnitRoundoff(DatasetRecord(file_, "/lse").dtype);
    position->sum_error = kF32SumError;
    position->shift = lse;
    // By definition no other token is more likely than the least of these.
    position->unlisted = *std::min_element(position->log_p.begin(), position->log_p.end()) - lse;
    Subtract(lse, &position->log_p);
    Sort(Numbers("/topk_ids", at() * width_, width_), position);
  }
  void Sort(const std::vector<double>& ids, TokenDistribution* position) const {
    std::vector<size_t> order(ids.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
    const std::vector<double> unsorted = position->log_p;
    for (size_t i = 0; i < order.size(); ++i) {
      position->tokens[i] = static_cast<int64_t>(ids[order[i]]);
      position->log_p[i] = unsorted[order[i]];
      if (i > 0 && position->tokens[i] == position->tokens[i - 1]) {
        Refuse(fmt::format("position {} names token {} twice", at(), position->tokens[i]));
      }
      if (position->tokens[i] < 0) Unreadable(fmt::format("{} is no token", position->tokens[i]));
    }
  }

  std::unique_ptr<TensorSource> source_;
  TensorSource& file_;
  std::string name_;  // of the tensor that has the logits
  int64_t positions_ = 0;
  int64_t width_ = 0;
  bool whole_ = false;
  bool has_next_ = false;
  double error_ = 0;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenTensorLogits(const std::string& path) {
  return std::make_unique<TensorLogits>(path);
}

}  // namespace kvcheck
