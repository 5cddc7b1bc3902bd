"""The vocabulary of cues: words that say, in many languages, that what follows is the clock of this moment.

Words are sorted by what they do in a phrase, not by language: `current` + `date` + `and` + `time` is put together
the same way in all of them, in any order.
"""

# ruff: noqa: SIM905

from __future__ import annotations

NOW = frozenset(
    """
    current currently now today today's todays present rightnow aktuell aktuelle aktuelles aktueller aktuellen jetzt
    jetzige jetziges jetziger derzeit derzeitige derzeitiges heute heutige heutiges heutiger momentan momentane
    gegenwärtig gegenwärtige actuel actuelle actuels actuelles actuellement maintenant aujourd'hui courante courant
    actual actuales ahora hoy atual atuais agora hoje attuale attuali corrente correnti adesso oggi odierna odierno
    huidig huidige nu vandaag nuvarande aktuellt aktuella idag dagens nuværende nåværende nykyinen nyt tänään
    aktualna aktualny aktualne obecna obecny obecne bieżąca bieżący bieżące teraz dziś dzisiaj dzisiejsza dzisiejszy
    aktuální současný současné současná nyní teď dnes dnešní aktuálny aktuálne aktuálna súčasný súčasná dnešný
    jelenlegi ma mai aktuális curentă curent curente actuală acum astăzi azi текуща текущо сега днес днешна trenutno
    trenutni trenutačno sada danas današnji тренутно данас trenutna текущая текущее текущие текущий сейчас сегодня
    сегодняшняя сегодняшний нынешняя нынешнее настоящее поточна поточний поточні зараз сьогодні сьогоднішня dabar
    šiandien dabartinis dabartinė pašreizējais tagad šodien praegune praegu täna zdaj trenutni danes ara avui
    actualitat anki anda şimdi şimdiki bugün bugünün bugünkü güncel geçerli mevcut nay tại hiện bây sekarang ini
    kini terkini semasa τρέχουσα τρέχων τρέχουσες τώρα σήμερα σημερινή הנוכחי הנוכחית הנוכחיים נוכחי נוכחית עכשיו
    כעת היום الحالي الحالية الحاليان الآن اليوم کنونی فعلی اکنون امروز الان جاری حاضر موجودہ ابھی آج वर्तमान अभी आज
    मौजूदा বর্তমান এখন আজ আজকের सध्या सध्याची
    """.split()
)
"""Words for *now* and *current*."""

TIME = frozenset(
    """
    time date datetime timestamp clock hour day month year week weekday zeit uhrzeit datum zeitpunkt zeitstempel
    wochentag heure date horodatage jour hora fecha data dia horário horario giorno orario tijd tijdstip dag tid
    tidpunkt klockan dato tidspunkt klokken klokkeslæt aika päivämäärä kello päivä kellonaika godzina czas dzień čas
    deň den hodina idő dátum időpont nap ora timp timpul дата время час часа време день година vrijeme vreme laikas
    data diena laiks datums aeg kuupäev kellaaeg tarih tarihi saat saati zaman zamanı gün günü giờ ngày gian thời
    waktu tanggal jam hari tarikh masa ώρα ημερομηνία ημέρα שעה השעה תאריך התאריך זמן הזמן התאריך והשעה ושעה الوقت
    التاريخ والوقت والتاريخ وقت تاريخ زمان تاریخ ساعت समय तारीख दिनांक তারিখ সময় वेळ
    """.split()
)
"""Words for what a clock shows."""

STAMP = frozenset({"timestamp", "ts", "datetime", "epoch", "unixtime", "zeitstempel", "horodatage"})
"""Names that stand for the clock of this moment as a label of their own."""

ORIGIN = frozenset(
    """
    local system server device host machine wall utc gmt unix systemzeit ortszeit locale lokale
    """.split()
)
"""Whose clock it is: with a word of TIME, a label."""

LINK = frozenset(
    """
    as a the an and & is it its it's right at this of moment s exact precise what user users user's your my client
    real approx approximate ms millis milliseconds sec secs seconds us ns iso iso8601 utc gmt unix epoch local str
    string formatted ist es der die das und den wir haben zum et est la le les du il nous sommes on y son el los las
    schreiben
    e é è sono o as do da são del della de het en is och är det er på ja on nyt i jest są je a és este și и je i і й
    є це ve dan ve və adalah và là lúc bây hôm saat hari pada και είναι η הוא היא ו ה הם هو هي و است و है हैं और का
    के की এবং ও şu an'ki bu şuan
    """.split()
)
"""Small words inside a cue; alone they are none."""

BEGINNING = frozenset(
    """
    started start begun began beginning opened commenced startzeit gestartet begonnen beginn début commencée
    commencé démarrée inicio iniciada iniciado início iniziata inizio gestart rozpoczęta начало начата начался
    початок başlangıç
    """.split()
)
TALK = frozenset(
    """
    conversation session chat thread dialogue gespräch unterhaltung sitzung conversación sesión conversa sessão
    conversazione sessione gesprek sessie rozmowa sesja разговора разговор сессии сессия беседы чата розмови sohbet
    """.split()
)
"""A TALK that has its BEGINNING: `Conversation started:`, `Session start time:`."""

VERBS = frozenset(
    """
    is it's são sono at on of ist est es é è jest är er on είναι है हैं là adalah कि
    """.split()
)
"""Words that join a cue to its clock, at its end or within it."""

TODAY = frozenset(
    """
    today today's todays heute aujourd'hui hoy hoje oggi vandaag idag dagens dnes dziś dzisiaj сегодня сьогодні днес
    bugün σήμερα היום اليوم امروز आज tänään astăzi azi ma danas šodien šiandien täna avui
    """.split()
)
"""Words of NOW that announce a day: a time of day alone after one is an appointment."""

SENTENCES = frozenset(
    {"it is", "it's", "es ist", "wir haben den", "wir schreiben den", "nous sommes le", "nous sommes"}
)
SENTENCES |= {"on est le", "è", "son las"}
"""Beginnings of sentences that state a full date."""

VETO = frozenset(
    """
    example examples e.g eg sample assume assuming assumed pretend imagine suppose supposing exercise scenario
    fiction fictional story novel game roleplay simulate simulated simulation hypothetical hypothetically if when
    whenever unless until translate say says said reply replies write writes print prints output outputs parse
    convert quote expected regex test case like instance asks asked question beispiel angenommen wenn falls nimm
    exemple supposons imaginons si ejemplo supongamos imagina exemplo suponha se esempio supponiamo immagina stel
    voorbeeld als przykład załóż jeśli пример допустим представь если предположим приклад якщо örnek eğer varsayalım
    """.split()
)
"""Words in the same sentence that make a date the matter and not the clock."""

ASIAN_VETO = tuple(
    """
    翻译 翻譯 例如 示例 例子 例： 例: 假设 假設 如果 假如 比如 例えば たとえば 仮に もし 訳 예를 예시 예: 가정 만약 번역
    """.split()
)
