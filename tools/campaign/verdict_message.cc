#include "tools/campaign/verdict_message.h"

#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

constexpr int64_t kMostEntries = 1'000'000;
constexpr int kLastDType = static_cast<int>(DType::kBool);

// One order of fields for both directions: Field(&x) writes x or reads it.
class Writer {
 public:
  void Number(const int64_t& value) { encoder_.Integer(value); }
  void Number(const double& value) { encoder_.Integer(std::bit_cast<int64_t>(value)); }
  void Text(const std::string& text) { encoder_.Text(text); }
  template <typename Enum>
  void Choice(const Enum& value, int) {
    encoder_.Byte(static_cast<char>(value));
  }
  int64_t Size(int64_t size) {
    encoder_.Integer(size);
    return size;
  }
  const Message& message() const { return encoder_.message(); }

 private:
  MessageEncoder encoder_;
};

class Reader {
 public:
  explicit Reader(const Message& message) : decoder_(message) {}
  void Number(int64_t& value) { value = decoder_.Integer(); }
  void Number(double& value) { value = std::bit_cast<double>(decoder_.Integer()); }
  void Text(std::string& text) { text = decoder_.Text(); }
  template <typename Enum>
  void Choice(Enum& value, int last) {
    const int read = static_cast<unsigned char>(decoder_.Byte());
    if (read > last) {
      throw Error(ErrorCode::kUnreadableFile, "a message with a value that does not exist");
    }
    value = static_cast<Enum>(read);
  }
  int64_t Size(int64_t) {
    const int64_t size = decoder_.Integer();
    if (size < 0 || size > kMostEntries) {
      throw Error(ErrorCode::kUnreadableFile, "a message of too many entries");
    }
    return size;
  }
  void ExpectEnd() const { decoder_.ExpectEnd(); }

 private:
  MessageDecoder decoder_;
};

template <typename Coder, typename Vector, typename Each>
void List(Coder* coder, Vector& list, const Each& each) {
  const int64_t size = coder->Size(std::ssize(list));
  for (int64_t i = 0; i < size; ++i) {
    // Grows with what has really arrived.
    if constexpr (!std::is_const_v<Vector>) {
      if (std::ssize(list) <= i) list.emplace_back();
    }
    each(list[static_cast<size_t>(i)]);
  }
}

template <typename Coder, typename Lines>
void Texts(Coder* coder, Lines& lines) {
  List(coder, lines, [&](auto& line) { coder->Text(line); });
}

template <typename Coder, typename Report>
void Element(Coder* coder, Report& e) {
  coder->Number(e.element);
  for (auto* text : {&e.coordinates, &e.expected_text, &e.got_text}) coder->Text(*text);
  for (auto* number : {&e.expected, &e.expected_low, &e.got, &e.error, &e.bound, &e.reference_bound,
                       &e.mass, &e.ratio}) {
    coder->Number(*number);
  }
  List(coder, e.terms, [&](auto& term) {
    coder->Text(term.name);
    coder->Number(term.value);
    coder->Number(term.share);
  });
  coder->Choice(e.precision, kPrecisions - 1);
}

// Axes alone; cells follow.
template <typename Coder, typename Axis>
void AxisFields(Coder* coder, Axis& axis) {
  coder->Text(axis.label);
  for (auto* number : {&axis.extent, &axis.width, &axis.first}) coder->Number(*number);
}

void Map(Writer* writer, const HeatMap& map) {
  if (writer->Size(map.empty() ? 0 : 1) == 0) return;
  AxisFields(writer, map.down());
  AxisFields(writer, map.across());
  for (int64_t d = 0; d < map.down().Cells(); ++d) {
    for (int64_t a = 0; a < map.across().Cells(); ++a) writer->Number(map.At(d, a));
  }
}

void Map(Reader* reader, HeatMap& map) {
  constexpr int64_t kMostCells = 1'000;  // along one axis: lines and columns of a report
  if (reader->Size(0) == 0) return;
  HeatAxis down, across;
  for (HeatAxis* axis : {&down, &across}) {
    AxisFields(reader, *axis);
    if (axis->extent < 1 || axis->width < 1 || axis->Cells() > kMostCells) {
      throw Error(ErrorCode::kUnreadableFile, "a message with a heat map that cannot be");
    }
  }
  map = HeatMap(down, across);
  for (int64_t d = 0; d < down.Cells(); ++d) {
    for (int64_t a = 0; a < across.Cells(); ++a) {
      double ratio = 0;
      reader->Number(ratio);
      map.Add(d * down.width, a * across.width, ratio);
    }
  }
}

template <typename Coder, typename Maps>
void MapFields(Coder* coder, Maps& heat) {
  Map(coder, heat.rows_by_channel);
  Map(coder, heat.heads_by_token);
}

template <typename Coder, typename Bool>
void Flag(Coder* coder, Bool& flag) {
  int64_t number = flag ? 1 : 0;
  coder->Number(number);
  if constexpr (!std::is_const_v<Bool>) flag = number != 0;
}

template <typename Coder, typename Number>
void MaybeNumber(Coder* coder, Number& number) {
  if (coder->Size(number ? 1 : 0) == 0) return;
  if constexpr (!std::is_const_v<Number>) number.emplace();
  coder->Number(*number);
}

template <typename Coder, typename Measured>
void MetricsFields(Coder* coder, Measured& m) {
  coder->Number(m.finite);
  coder->Number(m.not_finite);
  for (auto* number : {&m.max_abs, &m.mean_abs, &m.rms_abs, &m.max_rel, &m.mean_rel, &m.rms_rel,
                       &m.max_ulp, &m.bound_ratio.q50, &m.bound_ratio.q90, &m.bound_ratio.q99,
                       &m.bound_ratio.q100, &m.median_bound_share, &m.expected_rms, &m.got_rms,
                       &m.passing_ulp, &m.passing_abs, &m.passing_rel, &m.passing_factor}) {
    coder->Number(*number);
  }
  for (auto& count : m.ulp_histogram) coder->Number(count);
  for (auto* number : {&m.nmse, &m.cosine, &m.snr_db}) MaybeNumber(coder, *number);
}

template <typename Coder, typename Output>
void OutputFields(Coder* coder, Output& output) {
  for (auto* text : {&output.name, &output.rule, &output.shape, &output.cause, &output.passes_with})
    coder->Text(*text);
  coder->Choice(output.outcome, static_cast<int>(Outcome::kTimedOut));
  coder->Choice(output.dtype, kLastDType);
  for (auto* lines : {&output.reasons, &output.special_lines, &output.warnings, &output.hints,
                      &output.breakdown}) {
    Texts(coder, *lines);
  }
  List(coder, output.plan_changes, [&](auto& change) {
    Flag(coder, change.of_profile);
    List(coder, change.words, [&](auto& word) {
      for (auto* text : {&word.word, &word.former, &word.value, &word.meaning}) coder->Text(*text);
      Flag(coder, word.is_default);
    });
  });
  MetricsFields(coder, output.metrics);
  Flag(coder, output.basic_metrics);
  auto& counts = output.counts;
  for (auto* count :
       {&counts.elements, &counts.judged, &counts.failed, &counts.failed_by_noise,
        &counts.unconstrained, &counts.undefined, &counts.unbounded, &counts.free,
        &counts.on_reference_bound, &counts.unresolved, &counts.left_out, &counts.loose,
        &counts.accepted}) {
    coder->Number(*count);
  }
  for (auto& rows : output.rows_at) coder->Number(rows);
  for (auto* count :
       {&output.changes_rows, &output.changes_of_rows, &output.with_share, &output.pass_as_zero}) {
    coder->Number(*count);
  }
  coder->Number(output.median_bound_share);
  coder->Number(output.rows_with_inputs);
  coder->Number(output.blind_rows);
  coder->Text(output.blind_where);
  MapFields(coder, output.heat);
}

template <typename Coder, typename Judged>
void VerdictFields(Coder* coder, Judged& judged) {
  coder->Text(judged.signature);
  auto& verdict = judged.verdict;
  coder->Choice(verdict.outcome, static_cast<int>(Outcome::kTimedOut));
  coder->Number(verdict.elements);
  Flag(coder, verdict.of_operations);
  for (auto* lines : {&verdict.reasons, &verdict.warnings, &verdict.assumptions}) {
    Texts(coder, *lines);
  }
  for (auto* text : {&verdict.case_text, &verdict.plan, &verdict.profile, &verdict.implementation,
                     &verdict.command}) {
    coder->Text(*text);
  }
}

}  // namespace

Message Encode(const SignedVerdict& judged) {
  Writer writer;
  VerdictFields(&writer, judged);
  List(&writer, judged.verdict.outputs, [&](const OutputVerdict& output) {
    OutputFields(&writer, output);
    if (writer.Size(output.worst ? 1 : 0) == 1) Element(&writer, *output.worst);
  });
  return writer.message();
}

SignedVerdict DecodeVerdict(const Message& message) {
  Reader reader(message);
  SignedVerdict judged;
  VerdictFields(&reader, judged);
  List(&reader, judged.verdict.outputs, [&](OutputVerdict& output) {
    OutputFields(&reader, output);
    if (reader.Size(0) == 1) Element(&reader, output.worst.emplace());
  });
  reader.ExpectEnd();
  return judged;
}

}  // namespace kvcheck
